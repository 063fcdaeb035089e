// The bytes of a GGUF header: the inverse of parse().
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "gguf/file.h"

namespace tern::gguf {

/// Everything before the data section, padded to `alignment`. Tensors are announced at the offsets they carry.
std::string encode_header(uint32_t version, uint32_t alignment, const Metadata& metadata,
                          std::span<const TensorInfo> tensors);

}  // namespace tern::gguf
