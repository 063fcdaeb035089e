// tests/golden/vectors.json: blocks and rows with known results, made outside this engine.
#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace tern::test {

/// The vector `name`.
const nlohmann::json& vector(const std::string& name);
std::vector<std::byte> from_hex(const std::string& hex);
/// Digest of the little-endian bytes of `values`.
std::string sha256_f32(std::span<const float> values);

}  // namespace tern::test
