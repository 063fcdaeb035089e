#include "backend/matrix_weights.h"

#include <cstring>

#include "base/float16.h"

namespace tern::test {
namespace {

using enum TensorType;

/// Where the f16 scales of a block lie (-1: no further one); types without a row hold no f16 scale.
struct Scales {
  TensorType type;
  int first, second = -1;
};
constexpr Scales kScales[] = {{Q4_0, 0},      {Q4_1, 0, 2}, {Q5_0, 0},    {Q5_1, 0, 2}, {Q8_0, 0},
                              {Q2_K, 80, 82}, {Q3_K, 108},  {Q4_K, 0, 2}, {Q5_K, 0, 2}, {Q6_K, 208},
                              {IQ4_NL, 0},    {IQ4_XS, 0},  {TQ1_0, 52},  {TQ2_0, 64},  {Q1_0, 0},
                              {Q2_0, 0},      {PQ2_0, 0},   {PTQ1_0, 26}, {F16, 0}};

bool has_two_bit_codes(TensorType type) {
  return type == TQ2_0 || type == I2_S || type == PQ2_0 || type == Q2_0;
}

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void put_scales(TensorType type, std::byte* block, std::mt19937& random) {
  std::uniform_real_distribution<float> around(0.01f, 0.1f);
  const auto sign = [&] { return random() % 2 == 0 ? 1.0f : -1.0f; };
  for (const Scales& s : kScales) {
    if (s.type != type) continue;
    put(block + s.first, f32_to_f16(around(random) * sign()));
    if (s.second >= 0) put(block + s.second, f32_to_f16(around(random) * sign()));
  }
  if (type == MXFP4) put(block, static_cast<uint8_t>(118 + random() % 8));
  if (type == BF16) put(block, f32_to_bf16(around(random) * sign()));
  if (type == F32) put(block, around(random) * sign());
}

}  // namespace

std::vector<std::byte> random_tensor(TensorType type, int64_t rows, int64_t cols, Codes codes, std::mt19937& random) {
  const TypeInfo& info = type_info(type);
  const int64_t blocks = rows * cols / info.block_elements;
  std::vector<std::byte> bytes(static_cast<size_t>(blocks) * info.block_bytes + info.tail_bytes);
  for (std::byte& b : bytes) {
    auto v = static_cast<unsigned>(random() & 255u);
    if (codes == Codes::kTernaryOnly && has_two_bit_codes(type)) v &= ~((v & (v >> 1) & 0x55u) * 2);  // 3 becomes 1
    b = static_cast<std::byte>(v);
  }
  for (int64_t i = 0; i < blocks; ++i) put_scales(type, bytes.data() + i * info.block_bytes, random);
  if (type == I2_S) put(bytes.data() + blocks * info.block_bytes, 0.0371f);
  return bytes;
}

}  // namespace tern::test
