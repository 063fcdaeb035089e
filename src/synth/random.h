// Random numbers by index: value i depends on the seed, a name and i alone, so any thread may draw any part of a tensor
// in any order.
#pragma once
#include <cstdint>
#include <string_view>

namespace tern::synth {

class Random {
 public:
  Random(uint64_t seed, std::string_view name) : key_(mix(seed)) {
    for (const char c : name) key_ = mix(key_ ^ static_cast<unsigned char>(c));
  }

  uint64_t bits(uint64_t i) const noexcept { return mix(key_ + i * 0x9E3779B97F4A7C15u); }
  /// In [0, 1).
  float uniform(uint64_t i) const noexcept { return static_cast<float>(bits(i) >> 40) * 0x1p-24f; }
  /// Nearly normal, mean 0, deviation 1: the sum of four uniforms, cut off at 3.46 deviations.
  float normal(uint64_t i) const noexcept {
    const uint64_t b = bits(i);
    const auto sum = static_cast<int32_t>((b & 0xFFFF) + (b >> 16 & 0xFFFF) + (b >> 32 & 0xFFFF) + (b >> 48));
    constexpr float kDeviation = 37837.22f;  // of the sum: 65536 * sqrt(4 / 12)
    return (static_cast<float>(sum) - 131070.0f) / kDeviation;
  }

 private:
  /// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
  static constexpr uint64_t mix(uint64_t z) noexcept {
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  uint64_t key_;
};

}  // namespace tern::synth
