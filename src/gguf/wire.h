// What the reader and the writer share about the bytes: names and widths of metadata types, limits of a strict file.
// Source: ggml's src/gguf.cpp.
#pragma once
#include <cstdint>
#include <string_view>

#include "gguf/file.h"

namespace tern::gguf {

inline constexpr std::string_view kMagic = "GGUF";
inline constexpr uint32_t kDefaultAlignment = 32;
inline constexpr uint32_t kMaxDims = 4;
inline constexpr size_t kMaxTensorName = 63;  // ggml keeps names in char[64]
inline constexpr std::string_view kAlignmentKey = "general.alignment";

/// What `metadata` says about alignment, kDefaultAlignment when it says nothing. kBadFile, naming `file`, when it is
/// not a power of two below 2^32.
uint32_t alignment_of(const Metadata& metadata, const std::string& file);

}  // namespace tern::gguf
