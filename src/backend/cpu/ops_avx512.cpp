#include "backend/cpu/vec_avx512.h"

#include "backend/cpu/ops_body.h"

namespace tern::cpu {

constinit const Ops kOpsAvx512 = make_ops("avx512");

}  // namespace tern::cpu
