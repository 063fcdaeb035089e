#include "quant/transcode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "base/error.h"
#include "quant/format.h"
#include "quant/i2_s.h"
#include "quant/pq2_0.h"
#include "quant/ptq1_0.h"
#include "quant/tq1_0.h"
#include "quant/tq2_0.h"

namespace tern::quant {
namespace {

/// The unit in which tensors are compared: the block of every ternary format is a whole number of these.
constexpr int64_t kGroup = 128;
constexpr int64_t kMaxBlock = 256;
constexpr uint8_t kZeroCode = 1;

struct Codec {
  TensorType type;
  bool has_plus_two;  // code 3 may be written
  /// Codes of one block; returns its scale, 0 when the block has none of its own.
  float (*unpack)(const std::byte* block, uint8_t* codes);
  void (*pack)(const uint8_t* codes, float scale, std::byte* block);
};

template <typename Block>
constexpr Codec codec(TensorType type, bool has_plus_two) {
  return {.type = type,
          .has_plus_two = has_plus_two,
          .unpack =
              [](const std::byte* bytes, uint8_t* codes) {
                const auto& block = *reinterpret_cast<const Block*>(bytes);
                unpack_codes(block, codes);
                if constexpr (requires { block.d; }) return f16_to_f32(block.d);
                return 0.0f;
              },
          .pack =
              [](const uint8_t* codes, [[maybe_unused]] float scale, std::byte* bytes) {
                auto& block = *reinterpret_cast<Block*>(bytes);
                pack_codes(codes, block);
                if constexpr (requires { block.d; }) block.d = f32_to_f16(scale);
              }};
}

constexpr Codec kCodecs[] = {
    codec<BlockPTQ1_0>(TensorType::PTQ1_0, false), codec<BlockPQ2_0>(TensorType::PQ2_0, true),
    codec<BlockTQ1_0>(TensorType::TQ1_0, false),   codec<BlockTQ2_0>(TensorType::TQ2_0, true),
    codec<BlockI2_S>(TensorType::I2_S, false),
};

const Codec* find_codec(TensorType type) {
  for (const Codec& c : kCodecs) {
    if (c.type == type) return &c;
  }
  return nullptr;
}

class Transcoder {
 public:
  Transcoder(const gguf::TensorInfo& t, std::span<const std::byte> bytes, const Codec& source, const Codec& target)
      : tensor_(t),
        bytes_(bytes),
        source_(source),
        target_(target),
        from_(type_info(source.type)),
        to_(type_info(target.type)),
        source_scale_(tensor_scale(t.type, bytes)) {}

  std::vector<std::byte> run();

 private:
  static bool one_scale(const TypeInfo& info) { return info.tail_bytes != 0; }
  /// Codes of group g and its scale.
  float group(int64_t g, uint8_t* codes);
  /// The scale of a run of groups: that of the first group with a weight that is not zero.
  float pick_scale(int64_t first, int64_t count);
  /// Changes the codes of group g so that they mean the same under `scale`, or refuses.
  void adapt(int64_t g, float own, float scale, uint8_t* codes) const;
  [[noreturn]] void refuse(int64_t element, const std::string& why) const;

  const gguf::TensorInfo& tensor_;
  std::span<const std::byte> bytes_;
  const Codec& source_;
  const Codec& target_;
  const TypeInfo& from_;
  const TypeInfo& to_;
  float source_scale_;

  // The source block last unpacked: neighbours in it, and its second reading, cost nothing.
  int64_t block_ = -1;
  float block_scale_ = 0;
  uint8_t block_codes_[kMaxBlock] = {};
};

bool is_zero(uint8_t code, float scale) {
  return code == kZeroCode || scale == 0;
}

bool fits_f16(float v) {
  return f16_to_f32(f32_to_f16(v)) == v;
}

void Transcoder::refuse(int64_t element, const std::string& why) const {
  fail(ErrorCode::kUnsupported, "tensor {} cannot become {} without loss: row {}, column {}: {}", tensor_.name,
       to_.name, element / tensor_.ne[0], element % tensor_.ne[0], why);
}

float Transcoder::group(int64_t g, uint8_t* codes) {
  const int64_t element = g * kGroup, block = element / from_.block_elements;
  if (block != block_) {
    block_ = block;
    block_scale_ = source_.unpack(bytes_.data() + block * from_.block_bytes, block_codes_);
  }
  std::copy_n(block_codes_ + element % from_.block_elements, kGroup, codes);
  return one_scale(from_) ? source_scale_ : block_scale_;
}

float Transcoder::pick_scale(int64_t first, int64_t count) {
  uint8_t codes[kGroup];
  std::optional<float> fallback;
  for (int64_t g = first; g < first + count; ++g) {
    const float scale = group(g, codes);
    if (std::any_of(codes, codes + kGroup, [scale](uint8_t c) { return !is_zero(c, scale); })) return scale;
    if (!fallback) fallback = scale;
  }
  // All zero: any scale will do; the first keeps the bytes of a round trip unless the target cannot hold it.
  return one_scale(to_) || fits_f16(*fallback) ? *fallback : 0.0f;
}

void Transcoder::adapt(int64_t g, float own, float scale, uint8_t* codes) const {
  const int64_t first = g * kGroup;
  if (!std::isfinite(own)) refuse(first, fmt::format("the scale is {}", own));
  const uint8_t max_code = target_.has_plus_two ? 3 : 2;
  const bool representable = one_scale(to_) || fits_f16(scale);
  if (own == scale && representable && *std::max_element(codes, codes + kGroup) <= max_code) return;
  for (int64_t i = 0; i < kGroup; ++i) {
    if (is_zero(codes[i], own)) {
      // Under a scale of zero every code is a zero; keep it where it stays one, so that a round trip keeps the bytes.
      if (scale != 0 || codes[i] > max_code) codes[i] = kZeroCode;
      continue;
    }
    if (own != scale) {
      refuse(first + i,
             fmt::format("its scale is {:.9g}, that of the weights before it {:.9g}, and {} keeps one scale for {}",
                         own, scale, to_.name, one_scale(to_) ? "the whole tensor" : "256 weights"));
    }
    if (!representable) {
      refuse(first + i, fmt::format("the scale {:.9g} is not an f16; the nearest is {:.9g}", scale,
                                    f16_to_f32(f32_to_f16(scale))));
    }
    if (codes[i] > max_code) {
      refuse(first + i, fmt::format("the weight is +2 x {:.9g} and {} has codes for -1, 0 and +1 only; PQ2_0 holds it",
                                    own, to_.name));
    }
  }
}

std::vector<std::byte> Transcoder::run() {
  if (tensor_.ne[0] % to_.block_elements != 0) {
    fail(ErrorCode::kUnsupported, "tensor {} cannot become {}: its rows have {} weights, not a multiple of {}",
         tensor_.name, to_.name, tensor_.ne[0], to_.block_elements);
  }
  CHECK(bytes_.size() == gguf::tensor_bytes(tensor_.type, tensor_.ne), "{} bytes of tensor {}", bytes_.size(),
        tensor_.name);
  std::vector<std::byte> out(gguf::tensor_bytes(target_.type, tensor_.ne));
  const int64_t blocks = tensor_.elements() / to_.block_elements, per_block = to_.block_elements / kGroup;
  float scale = one_scale(to_) ? pick_scale(0, blocks * per_block) : 0.0f;
  uint8_t codes[kMaxBlock];
  for (int64_t b = 0; b < blocks; ++b) {
    if (!one_scale(to_)) scale = pick_scale(b * per_block, per_block);
    for (int64_t i = 0; i < per_block; ++i) {
      const int64_t g = b * per_block + i;
      const float own = group(g, codes + i * kGroup);
      adapt(g, own, scale, codes + i * kGroup);
    }
    target_.pack(codes, scale, out.data() + b * to_.block_bytes);
  }
  if (one_scale(to_)) std::memcpy(out.data() + (out.size() - to_.tail_bytes), &scale, sizeof scale);
  return out;
}

}  // namespace

std::vector<std::byte> transcode(const gguf::TensorInfo& t, std::span<const std::byte> bytes, TensorType target) {
  const Codec *from = find_codec(t.type), *to = find_codec(target);
  if (from == nullptr || to == nullptr) {
    fail(ErrorCode::kUnsupported,
         "tensor {} cannot be transcoded from {} to {}: {} is not one of PTQ1_0, PQ2_0, TQ1_0, TQ2_0, I2_S", t.name,
         type_info(t.type).name, type_info(target).name, type_info(from == nullptr ? t.type : target).name);
  }
  return Transcoder(t, bytes, *from, *to).run();
}

}  // namespace tern::quant
