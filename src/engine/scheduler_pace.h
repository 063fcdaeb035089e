// How many rows of prompts a step may take beside rows that decode: the step may last twice as long as one that only
// decodes, so that replies in flight come at half their speed at worst, or kUnnoticed where that is longer. Small
// models decode in a millisecond; reading beside them eight rows at a time would keep everybody waiting for his first
// token. Where more requests wait for that than answers are in flight, the step lasts as many times longer.
#pragma once
#include <algorithm>
#include <cstdint>

namespace tern {

class PrefillPace {
 public:
  static constexpr int32_t kLeast = 8;         // a prompt always moves on
  static constexpr double kUnnoticed = 0.007;  // seconds between two tokens: faster than anybody reads

  /// Rows for the next step, at most `most`, of `prompts` beside `decodes` answers.
  int32_t rows(int32_t most, int32_t prompts = 1, int32_t decodes = 1) const noexcept {
    if (decode_seconds_ <= 0 || row_seconds_ <= 0) return std::min(2 * kLeast, most);
    const double room = std::max(decode_seconds_, kUnnoticed - decode_seconds_) *
                        std::max(1.0, static_cast<double>(prompts) / std::max(1, decodes));
    const double fitting = std::clamp(room / row_seconds_, double{kLeast}, 1e6);
    return std::min(static_cast<int32_t>(fitting), most);
  }
  /// A step with `decodes` rows that decode and `reading` rows of prompts took `seconds`.
  void observe(int32_t decodes, int32_t reading, double seconds) noexcept {
    const auto learn = [](double& value, double seen) { value = value <= 0 ? seen : value + (seen - value) / 4; };
    if (reading == 0) {
      learn(decode_seconds_, seconds);
    } else if (decodes == 0 || decode_seconds_ > 0) {
      learn(row_seconds_, std::max(1e-9, (seconds - (decodes > 0 ? decode_seconds_ : 0)) / reading));
    }
  }

 private:
  double decode_seconds_ = 0, row_seconds_ = 0;
};

}  // namespace tern
