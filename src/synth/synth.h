// Writes well-formed GGUF files with random weights: for benchmarks of shapes whose real files are large, and for
// tests.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "gguf/file.h"
#include "gguf/types.h"
#include "synth/shape.h"

namespace tern::synth {

struct Options {
  TensorType type = TensorType::F32;      // of the matrices
  std::optional<TensorType> embd_type{};  // of token_embd and output; absent: the shape's, or `type`
  uint64_t seed = 1;
  int threads = 0;                                                // 0: default_threads(); the bytes do not depend on it
  std::function<void(uint64_t done, uint64_t total)> progress{};  // bytes of tensor data
  std::function<void(gguf::Metadata&)> edit_keys{};               // last word on the keys before they are written
};

struct Report {
  uint64_t tensors = 0, weights = 0, bytes = 0;  // bytes of tensor data
};

/// Streams the file: memory stays at some 20 MB whatever its size. Values depend on seed, tensor name and index only,
/// so files of one shape and seed in several real-valued formats hold the same model, as do those in ternary formats.
/// Ternary weights are 30 % -1, 40 % 0, 30 % +1 under one scale (tensors above 2^20 weights repeat 4096 tiles of 256 in
/// random order); the others are normal values of the same deviation (1/sqrt(inputs) in a block).
/// kUnsupported when a type has no encoder, kBadFile when rows are no whole blocks, kIo as gguf::Writer.
Report write_model(const std::string& path, const Shape& shape, const Options& options);

}  // namespace tern::synth
