// llama.cpp as an oracle of whole models: the libllama of the npm package the tests pin.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/libllama.h"

namespace tern::test {

/// Throws with what to do when the package is absent.
inline const cli::Libllama& libllama() {
  static const cli::Libllama library = [] {
    const std::string folder = TERN_SOURCE_DIR "/tests/npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64";
    if (!std::filesystem::exists(folder)) throw std::runtime_error(folder + " is not installed: run make deps");
    return cli::Libllama(folder);
  }();
  return library;
}

/// Appends the tokens; logits [tokens, n_vocab].
inline std::vector<float> run(cli::LlamaModel& model, std::span<const int32_t> tokens) {
  std::vector<float> logits;
  model.score(tokens, [&](size_t, std::span<const float> row) { logits.insert(logits.end(), row.begin(), row.end()); });
  return logits;
}

}  // namespace tern::test
