#include "backend/cpu/vec_avx2.h"

#include "backend/cpu/ops_body.h"

namespace tern::cpu {

constinit const Ops kOpsAvx2 = make_ops("avx2");

}  // namespace tern::cpu
