// Tensor types of GGUF: id, name, block geometry. The one table of what a type is on disk; how to decode it is quant/.
// Source: ggml's enum as of autumn 2026, BitNet's I2_S family and PrismML's PQ2_0 / PTQ1_0 (docs/formats.md).
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace tern {

/// The ids as files carry them. Ids not listed here are unknown and refused by number.
enum class TensorType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q8_1 = 9,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  Q8_K = 15,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ1_S = 19,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  I8 = 24,
  I16 = 25,
  I32 = 26,
  I64 = 27,
  F64 = 28,
  IQ1_M = 29,
  BF16 = 30,
  TQ1_0 = 34,
  TQ2_0 = 35,
  I2_S = 36,
  I8_S = 37,
  TL1 = 38,
  MXFP4 = 39,
  NVFP4 = 40,
  Q1_0 = 41,
  Q2_0 = 42,
  PQ2_0 = 142,
  PTQ1_0 = 143,
};

struct TypeInfo {
  TensorType type;
  std::string_view name;    // as GGUF spells it
  uint32_t block_elements;  // weights a block
  uint32_t block_bytes;     // bytes a block
  uint32_t tail_bytes = 0;  // once a tensor, after the blocks (I2_S: f32 scale and 28 bytes of padding)
};

/// Every type whose extent is known, also those this engine cannot decode (a reader must be able to step over them).
std::span<const TypeInfo> type_table() noexcept;
/// The row of `id`, or nullptr when the id is unknown.
const TypeInfo* find_type(uint32_t id) noexcept;
/// The row of `type`; it must be in the table.
const TypeInfo& type_info(TensorType type) noexcept;
/// By GGUF name, case-insensitive; nullptr when unknown.
const TypeInfo* find_type(std::string_view name) noexcept;

}  // namespace tern
