#include "backend/cpu/vec_neon.h"

#include "backend/cpu/ops_body.h"

namespace tern::cpu {

constinit const Ops kOpsNeon = make_ops("neon");

}  // namespace tern::cpu
