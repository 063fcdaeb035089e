// Which backends this build can make.
#include "backend/ref/ref_backend.h"
#include "engine/model.h"

namespace tern {

std::unique_ptr<Backend> make_backend(BackendKind kind, int threads) {
  (void)kind, (void)threads;
  return make_ref_backend();
}

}  // namespace tern
