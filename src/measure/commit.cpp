// Alone in its file: the header is another one after every commit.
#include "commit.h"

#include "measure/receipt.h"

namespace tern::measure {

std::string build_commit() {
  return TERN_COMMIT;
}

}  // namespace tern::measure
