// SHA-256 (FIPS 180-4) of the bytes of decoded weights: vectors.json states results of whole blocks that way.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace tern::test {

/// Lower-case hex digest.
std::string sha256(std::span<const std::byte> bytes);

}  // namespace tern::test
