// The reference executor: scalar, one thread, sums in double, one op after the other. Slow and obvious; the oracle of
// every op test. It rounds activations and KV entries exactly as their rules say.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace tern {

std::unique_ptr<Backend> make_ref_backend();

}  // namespace tern
