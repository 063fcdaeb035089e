// Writes GGUF v2 or v3: header first, then tensor data in the order announced, padded; the file appears under its name only
// when it is complete. Until then it has none, and a killed process leaves nothing behind; where the file system has no
// such files it is `<path>.partial`, which the next Writer replaces.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gguf/file.h"

namespace tern::gguf {

class Writer {
 public:
  /// `metadata` is written as it stands; `general.alignment` in it decides the padding.
  Writer(std::string path, const Metadata& metadata, uint32_t version = 3);
  ~Writer();  // an unfinished file is removed
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Announces a tensor. All announcements come before the first write_data.
  void add_tensor(std::string name, TensorType type, std::vector<int64_t> ne);
  /// Appends bytes of the tensors in announced order; may be called many times a tensor with any cut.
  void write_data(std::span<const std::byte> bytes);
  /// Pads, checks that every announced byte was written, renames. Throws kIo with path and reason (disk full ...).
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tern::gguf
