// Where the tensors of one file lie: checks the offsets of the data section and tells apart the types that share an id.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "gguf/file.h"

namespace tern::gguf {

/// Fills `nbytes` of each tensor and settles ids with several readings (42: Q2_0 in groups of 64 or of 128; 39: MXFP4
/// or TL2). `data` is the data section to the end of the file; `tensors` have name, type, shape and offset in file
/// order. kBadFile when an offset is unaligned, is not the end of the tensors before it, or a tensor passes the end of
/// `data`; kUnsupported when the reading cannot be told or is one that no reader can decode from the file alone.
void resolve_layout(std::span<const std::byte> data, uint32_t alignment, std::vector<TensorInfo>& tensors,
                    const std::string& file);

}  // namespace tern::gguf
