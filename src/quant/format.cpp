#include "quant/format.h"

#include <cstring>

#include "quant/bf16.h"
#include "quant/f16.h"
#include "quant/f32.h"
#include "quant/i2_s.h"
#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"
#include "quant/pq2_0.h"
#include "quant/ptq1_0.h"
#include "quant/q1_0.h"
#include "quant/q2_0.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"
#include "quant/tq1_0.h"
#include "quant/tq2_0.h"

namespace tern::quant {
namespace {

template <typename Block>
void decode(const std::byte* bytes, float* out, int64_t n, float tensor_scale) noexcept {
  const auto* blocks = reinterpret_cast<const Block*>(bytes);
  for (int64_t i = 0; i < n / Block::kElements; ++i) {
    if constexpr (requires { decode_block(blocks[i], tensor_scale, out); }) {
      decode_block(blocks[i], tensor_scale, out + i * Block::kElements);
    } else {
      decode_block(blocks[i], out + i * Block::kElements);
    }
  }
}

template <typename Block>
void encode(const float* x, std::byte* bytes, int64_t n, float tensor_scale) noexcept {
  auto* blocks = reinterpret_cast<Block*>(bytes);
  for (int64_t i = 0; i < n / Block::kElements; ++i) {
    if constexpr (requires { encode_block(x, tensor_scale, blocks[i]); }) {
      encode_block(x + i * Block::kElements, tensor_scale, blocks[i]);
    } else {
      encode_block(x + i * Block::kElements, blocks[i]);
    }
  }
}

template <typename Block>
constexpr Format read_only(TensorType type, Activation activation) {
  return {.type = type, .decode = decode<Block>, .activation = activation};
}
template <typename Block>
constexpr Format read_write(TensorType type, Activation activation) {
  return {.type = type, .decode = decode<Block>, .activation = activation, .encode = encode<Block>};
}
template <typename Block>
constexpr Format ternary(TensorType type, Activation activation) {
  return {.type = type, .decode = decode<Block>, .activation = activation, .ternary = true, .encode = encode<Block>};
}

using enum TensorType;
using enum Activation;
constexpr Format kFormats[] = {
    read_write<BlockF32>(F32, kF32),         read_write<BlockF16>(F16, kF32),
    read_write<BlockBF16>(BF16, kF32),       read_write<BlockQ4_0>(Q4_0, kI8x32),
    read_only<BlockQ4_1>(Q4_1, kI8x32),      read_only<BlockQ5_0>(Q5_0, kI8x32),
    read_only<BlockQ5_1>(Q5_1, kI8x32),      read_write<BlockQ8_0>(Q8_0, kI8x32),
    read_only<BlockQ2_K>(Q2_K, kI8x256),     read_only<BlockQ3_K>(Q3_K, kI8x256),
    read_write<BlockQ4_K>(Q4_K, kI8x256),    read_only<BlockQ5_K>(Q5_K, kI8x256),
    read_write<BlockQ6_K>(Q6_K, kI8x256),    read_only<BlockIQ4_NL>(IQ4_NL, kI8x32),
    read_only<BlockIQ4_XS>(IQ4_XS, kI8x256), read_only<BlockMXFP4>(MXFP4, kI8x32),
    read_only<BlockNVFP4>(NVFP4, kI8x32),    ternary<BlockTQ1_0>(TQ1_0, kI8x256),
    ternary<BlockTQ2_0>(TQ2_0, kI8x256),     ternary<BlockI2_S>(I2_S, kI8Row),
    read_only<BlockQ1_0>(Q1_0, kI8x128),     read_only<BlockQ2_0>(Q2_0, kI8x32),
    ternary<BlockPQ2_0>(PQ2_0, kI8x128),     ternary<BlockPTQ1_0>(PTQ1_0, kI8x128),
};

}  // namespace

std::span<const Format> formats() noexcept {
  return kFormats;
}

const Format* find_format(TensorType type) noexcept {
  for (const Format& f : kFormats) {
    if (f.type == type) return &f;
  }
  return nullptr;
}

float tensor_scale(TensorType type, std::span<const std::byte> tensor) noexcept {
  const size_t tail = type_info(type).tail_bytes;
  if (type != I2_S || tensor.size() < tail) return 1.0f;
  float scale = 1.0f;
  std::memcpy(&scale, tensor.data() + (tensor.size() - tail), sizeof scale);
  return scale;
}

}  // namespace tern::quant
