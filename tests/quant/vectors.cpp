#include "quant/vectors.h"

#include <fstream>
#include <stdexcept>

#include "quant/sha256.h"

namespace tern::test {

const nlohmann::json& vector(const std::string& name) {
  static const nlohmann::json all = [] {
    const std::string path = TERN_SOURCE_DIR "/tests/golden/vectors.json";
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot open " + path);
    return nlohmann::json::parse(file);
  }();
  return all.at(name);
}

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

std::string sha256_f32(std::span<const float> values) {
  return sha256(std::as_bytes(values));
}

}  // namespace tern::test
