#include "backend/cpu/vec_scalar.h"

#include "backend/cpu/ops_body.h"

namespace tern::cpu {

constinit const Ops kOpsScalar = make_ops("scalar");

}  // namespace tern::cpu
