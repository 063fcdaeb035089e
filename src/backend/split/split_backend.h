// One plan on several backends: each runs a segment of it (plan/segment.h), one after the other, with the weights,
// pages and state slots of its own layers. What crosses from one to the next goes through host memory.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/backend.h"

namespace tern {

struct SplitPart {
  std::unique_ptr<Backend> backend;
  size_t first_op = 0;  // of the plan; 0 for the first part, then one of block_starts(), ascending
};

std::unique_ptr<Backend> make_split_backend(std::vector<SplitPart> parts);

}  // namespace tern
