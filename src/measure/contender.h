// An engine with a model loaded, as the measurement drives it. An interface, so that two engines take turns under one
// clock, and so that tests measure one that takes no time.
#pragma once
#include <cstdint>
#include <span>

namespace tern::measure {

class Contender {
 public:
  virtual ~Contender() = default;
  /// Afterwards the cache holds exactly `depth` tokens. Forgets what lies behind, or reads what is missing; not timed.
  virtual void seek(int32_t depth) = 0;
  /// Reads `tokens` behind what the cache holds, as one prompt; complete on return.
  virtual void prompt(std::span<const int32_t> tokens) = 0;
  /// The same one by one, as if each had just been generated.
  virtual void generate(std::span<const int32_t> tokens) = 0;
};

}  // namespace tern::measure
