// A tiny random model, on the reference backend unless a test asks for another.
#pragma once
#include <string>
#include <string_view>

#include "backend/ref/ref_backend.h"
#include "engine/model.h"
#include "gguf/temp_folder.h"
#include "synth/synth.h"

namespace tern::test {

struct TinyFile {
  gguf::testing::TempFolder folder;
  std::string path = folder / "tiny.gguf";
  explicit TinyFile(std::string_view shape, TensorType type = TensorType::F32) {
    synth::write_model(path, synth::find_shape(shape), {.type = type, .threads = 1});
  }
};

/// Room for `sequences` of `context` tokens, batches of `rows`.
struct TinyModel {
  TinyFile source;
  Model model;
  explicit TinyModel(std::string_view shape, Runner::Limits limits = {.context = 256, .sequences = 2, .rows = 64},
                     BackendKind backend = BackendKind::kRef)
      : source(shape),
        model({.path = source.path,
               .backend = backend,
               .limits = {.context = limits.context,
                          .sequences = limits.sequences,
                          .rows = limits.rows,
                          .k = KvType::kF32,
                          .v = KvType::kF32}}) {}
  Runner& runner() { return model.runner(); }
};

inline std::vector<int32_t> some_tokens(int32_t n, int32_t seed = 1) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < n; ++i) ids.push_back((i * 37 + seed * 101) % 251);
  return ids;
}

}  // namespace tern::test
