#include "quant/sha256.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tern::test {
namespace {

/// The first 32 bits of the fraction of the square (root = 2) or cube root of the first n primes: FIPS 180-4's
/// constants.
template <size_t n>
std::array<uint32_t, n> root_fractions(int root) {
  std::array<uint32_t, n> out{};
  size_t count = 0;
  for (int p = 2; count < n; ++p) {
    bool prime = true;
    for (int q = 2; q * q <= p; ++q) prime = prime && p % q != 0;
    if (!prime) continue;
    const long double v = root == 2 ? sqrtl(p) : cbrtl(p);
    out[count++] = static_cast<uint32_t>((v - floorl(v)) * 4294967296.0L);
  }
  return out;
}

void compress(std::array<uint32_t, 8>& state, const uint8_t* block) {
  static const auto kRound = root_fractions<64>(3);
  std::array<uint32_t, 64> w{};
  for (size_t i = 0; i < 16; ++i) {
    w[i] = static_cast<uint32_t>(block[4 * i]) << 24 | static_cast<uint32_t>(block[4 * i + 1]) << 16 |
           static_cast<uint32_t>(block[4 * i + 2]) << 8 | block[4 * i + 3];
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t sum[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += sum[i];
}

}  // namespace

std::string sha256(std::span<const std::byte> bytes) {
  std::vector<uint8_t> padded(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) padded[i] = static_cast<uint8_t>(bytes[i]);
  padded.push_back(0x80);
  while (padded.size() % 64 != 56) padded.push_back(0);
  const uint64_t bits = static_cast<uint64_t>(bytes.size()) * 8;
  for (int shift = 56; shift >= 0; shift -= 8) padded.push_back(static_cast<uint8_t>(bits >> shift));

  std::array<uint32_t, 8> state = root_fractions<8>(2);
  for (size_t i = 0; i < padded.size(); i += 64) compress(state, padded.data() + i);
  std::string out;
  for (const uint32_t word : state) out += fmt::format("{:08x}", word);
  return out;
}

}  // namespace tern::test
