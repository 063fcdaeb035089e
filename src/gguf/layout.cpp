#include "gguf/layout.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/checked.h"
#include "base/error.h"
#include "base/float16.h"

namespace tern::gguf {
namespace {

constexpr int64_t kLegacyGroup = 128;

/// Bytes from a tensor's offset to the next one's, or to the end of the file.
struct Room {
  uint64_t bytes;
  bool last;
};

/// Whether a tensor of `size` bytes explains `room`. The last tensor may or may not be padded.
bool fills(uint64_t size, Room room, uint32_t alignment) {
  return room.bytes == round_up<uint64_t>(size, alignment) || (room.last && room.bytes == size);
}

uint64_t legacy_q2_0_bytes(const TensorInfo& t) {
  return tensor_bytes(TensorType::PQ2_0, t.ne);
}

enum class Q20 { kGroup64, kGroup128, kEither, kNeither };

/// The reading of id 42 that the extent of `t` proves.
Q20 q2_0_by_extent(const TensorInfo& t, Room room, uint32_t alignment) {
  const bool group64 = fills(tensor_bytes(TensorType::Q2_0, t.ne), room, alignment);
  const bool group128 = t.ne[0] % kLegacyGroup == 0 && fills(legacy_q2_0_bytes(t), room, alignment);
  if (group64 && group128) return Q20::kEither;
  return group64 ? Q20::kGroup64 : group128 ? Q20::kGroup128 : Q20::kNeither;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

/// Whether f16 bits at `p` can be the scale of a group of trained weights.
bool plausible_scale(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  const float d = f16_to_f32(bits);
  return d == 0.0f || (d >= 0x1p-20f && d < 16.0f);
}

/// oxibonsai 0.1's TQ2_0_g128 has the same id and extent as the legacy group-128 layout, with the codes first and the
/// scale last. It shows in the scales: all plausible behind the codes, not all in front. The odds that codes look like
/// 8 or more scales are under one in a thousand; shorter tensors are not judged.
void refuse_scale_last(std::span<const std::byte> blocks, const TensorInfo& t, const std::string& file) {
  constexpr size_t kBlock = 34, kFew = 8, kEnough = 256;
  const size_t n = std::min(blocks.size() / kBlock, kEnough);
  bool first = true, last = true;
  for (size_t i = 0; i < n; ++i) {
    first &= plausible_scale(&blocks[i * kBlock]);
    last &= plausible_scale(&blocks[i * kBlock + kBlock - 2]);
  }
  if (n >= kFew && last && !first)
    fail(ErrorCode::kUnsupported,
         "'{}': tensor '{}' of type 42 keeps its scales behind the codes (TQ2_0_g128 of oxibonsai 0.1), a layout this "
         "engine does not read; convert the model to PQ2_0",
         file, t.name);
}

/// Bytes of BitNet's TL2 for a shape (docs/formats.md); 0 when the shape cannot be TL2.
uint64_t tl2_bytes(const TensorInfo& t) {
  if (t.ne[0] < 256 || t.rows() != t.ne[1]) return 0;
  const auto k = static_cast<uint64_t>(t.ne[0]), rows = static_cast<uint64_t>(t.ne[1]);
  return round_up<uint64_t>((k - 256) * rows / 3 * 5 / 8 + 256 * rows / 2 * 4 / 8, 32) + 32;
}

[[noreturn]] void refuse_lookup_table_type(std::string_view type, const TensorInfo& t, const std::string& file) {
  fail(ErrorCode::kUnsupported,
       "'{}': tensor '{}' has type {} (BitNet look-up-table layout), whose tiling comes from the build that wrote it "
       "and is "
       "not in the file; convert the model to I2_S",
       file, t.name, type);
}

/// What else the id of `t` has meant, for the message about an extent that does not fit.
std::string other_readings(const TensorInfo& t) {
  switch (t.type) {
    case TensorType::Q2_0: {
      const std::string legacy =
          t.ne[0] % kLegacyGroup == 0 ? fmt::format(" or {} bytes in groups of 128", legacy_q2_0_bytes(t)) : "";
      return fmt::format("; type 42 would need {} bytes in groups of 64{}", tensor_bytes(t.type, t.ne), legacy);
    }
    case TensorType::PQ2_0:
      return t.legacy_q2_0 ? "" : "; type 142 was IQ2_TN in old ik_llama.cpp files, which this engine does not read";
    case TensorType::PTQ1_0:
      return "; type 143 was IQ1_TN in old ik_llama.cpp files, which this engine does not read";
    case TensorType::NVFP4:
      return "; type 40 was a group-32 Q1_0 in early PrismML files, which this engine does not read";
    default:
      return "";
  }
}

/// Bytes of `t` in the other reading of its id that other_readings() tells; 0 where there is none.
uint64_t other_bytes(const TensorInfo& t) {
  const auto elements = static_cast<uint64_t>(t.elements());
  if (t.type == TensorType::PQ2_0) return t.legacy_q2_0 ? 0 : elements / 256 * 66;
  if (t.type == TensorType::PTQ1_0) return elements / 256 * 54;
  if (t.type == TensorType::NVFP4) return elements / 32 * 6;
  return 0;
}

/// BitNet's writers leave gaps behind the types that carry something after the weights.
bool may_leave_gap(TensorType type) {
  return type == TensorType::I2_S || type == TensorType::I8_S;
}

class Layout {
 public:
  Layout(std::span<const std::byte> data, uint32_t alignment, std::vector<TensorInfo>& tensors, const std::string& file)
      : data_(data), alignment_(alignment), tensors_(tensors), file_(file) {}

  void resolve() {
    uint64_t end = 0;  // of the tensors so far, padded
    for (size_t i = 0; i < tensors_.size(); ++i) {
      TensorInfo& t = tensors_[i];
      check_offset(i, end);
      if (t.type == TensorType::TL1) refuse_lookup_table_type("TL1", t, file_);
      if (t.type == TensorType::MXFP4) refuse_tl2(t, room(i));
      if (t.type == TensorType::Q2_0) settle_q2_0(t, room(i));
      t.nbytes = tensor_bytes(t.type, t.ne);
      if (t.offset > data_.size() || t.nbytes > data_.size() - t.offset)
        fail(
            ErrorCode::kBadFile,
            "'{}' is truncated: tensor '{}' ({}) needs bytes {} to {} of the data section, which has {}{}; download or "
            "convert it again",
            file_, t.name, type_info(t.type).name, t.offset, t.offset + t.nbytes, data_.size(),
            is_other_reading(t, room(i)) ? other_readings(t) : "");
      if (t.legacy_q2_0) refuse_scale_last(data_.subspan(t.offset, t.nbytes), t, file_);
      end = round_up<uint64_t>(t.offset + t.nbytes, alignment_);
    }
  }

 private:
  /// Whether a file that seems too short is whole in another reading: a mere download cut short rarely ends like that.
  bool is_other_reading(const TensorInfo& t, Room space) const {
    const uint64_t other = other_bytes(t);
    return other != 0 && space.last && fills(other, space, alignment_);
  }

  Room room(size_t i) const {
    const bool last = i + 1 == tensors_.size();
    const uint64_t end = last ? data_.size() : tensors_[i + 1].offset, begin = tensors_[i].offset;
    return {end > begin ? end - begin : 0, last};
  }

  void check_offset(size_t i, uint64_t expected) const {
    const TensorInfo& t = tensors_[i];
    if (t.offset % alignment_ != 0)
      fail(ErrorCode::kBadFile, "'{}': tensor '{}' starts at offset {}, which is not a multiple of the alignment {}",
           file_, t.name, t.offset, alignment_);
    const TensorInfo* before = i > 0 ? &tensors_[i - 1] : nullptr;
    if (t.offset == expected || (before && may_leave_gap(before->type) && t.offset > expected)) return;
    fail(ErrorCode::kBadFile, "'{}': tensor '{}' starts at offset {}, but the tensors before it end at {}{}{}", file_,
         t.name, t.offset, expected,
         before ? fmt::format(" (the last of them is '{}', {})", before->name, type_info(before->type).name) : "",
         before ? other_readings(*before) : "");
  }

  void refuse_tl2(const TensorInfo& t, Room space) const {
    const uint64_t tl2 = tl2_bytes(t);
    const bool mxfp4 =
        t.ne[0] % type_info(t.type).block_elements == 0 && fills(tensor_bytes(t.type, t.ne), space, alignment_);
    if (tl2 != 0 && !mxfp4 && fills(tl2, space, alignment_)) refuse_lookup_table_type("TL2", t, file_);
  }

  /// Mainline's Q2_0 (groups of 64) stays; the older group-128 layout under the same id becomes PQ2_0, its
  /// byte-identical twin.
  void settle_q2_0(TensorInfo& t, Room space) {
    Q20 reading = q2_0_by_extent(t, space, alignment_);
    const uint64_t larger = tensor_bytes(t.type, t.ne);
    const bool cut_off = t.ne[0] % kLegacyGroup == 0 ? space.bytes < legacy_q2_0_bytes(t) : space.bytes < larger;
    if (reading == Q20::kNeither && (!space.last || cut_off))
      return;  // the offset or the size is wrong: reported as such
    if (reading == Q20::kNeither && t.ne[0] % kLegacyGroup != 0) reading = Q20::kGroup64;
    if (reading == Q20::kEither || reading == Q20::kNeither) reading = file_wide_q2_0(t);
    if (reading == Q20::kGroup128) {
      t.type = TensorType::PQ2_0;
      t.legacy_q2_0 = true;
    }
  }

  /// The reading for a tensor whose own extent proves none: the one that another tensor proves, else the padding
  /// decides.
  Q20 file_wide_q2_0(const TensorInfo& t) const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const TensorInfo& other = tensors_[i];
      if (other.legacy_q2_0) return Q20::kGroup128;
      if (other.type != TensorType::Q2_0) continue;
      const Q20 reading = q2_0_by_extent(other, room(i), alignment_);
      if (reading == Q20::kGroup64 || reading == Q20::kGroup128) return reading;
    }
    const uint64_t larger = tensor_bytes(t.type, t.ne), smaller = legacy_q2_0_bytes(t);
    if (t.offset <= data_.size() && larger <= data_.size() - t.offset) {
      const auto bytes = data_.subspan(t.offset, larger);
      // Writers pad with zeros: anything else behind the smaller reading belongs to the larger. All zeros are zeros in
      // both.
      if (!all_zero(bytes.subspan(smaller)) || all_zero(bytes)) return Q20::kGroup64;
    }
    fail(ErrorCode::kUnsupported,
         "'{}': tensor '{}' of type 42 fits both readings of that id, {} bytes in groups of 64 and {} bytes in groups "
         "of 128, "
         "and nothing in the file decides; convert the model to PQ2_0",
         file_, t.name, larger, smaller);
  }

  std::span<const std::byte> data_;
  uint32_t alignment_;
  std::vector<TensorInfo>& tensors_;
  const std::string& file_;
};

}  // namespace

uint64_t tensor_bytes(TensorType type, const std::array<int64_t, 4>& ne) {
  const TypeInfo& info = type_info(type);
  int64_t elements = 1;
  for (const int64_t n : ne) {
    if (n <= 0 || !checked_mul(elements, n, &elements))
      fail(ErrorCode::kBadFile, "shape [{}, {}, {}, {}] has a dimension below 1 or more than 2^63-1 elements", ne[0],
           ne[1], ne[2], ne[3]);
  }
  if (ne[0] % info.block_elements != 0)
    fail(ErrorCode::kBadFile, "type {} needs rows of whole blocks of {} weights, but ne[0] is {}", info.name,
         info.block_elements, ne[0]);
  uint64_t bytes = static_cast<uint64_t>(elements) / info.block_elements;
  // Capped at 2^62 so that an offset and a padding can be added without a check.
  if (!checked_mul<uint64_t>(bytes, info.block_bytes, &bytes) || bytes > (uint64_t{1} << 62))
    fail(ErrorCode::kBadFile, "shape [{}, {}, {}, {}] of type {} has too many bytes", ne[0], ne[1], ne[2], ne[3],
         info.name);
  return bytes + info.tail_bytes;
}

void resolve_layout(std::span<const std::byte> data, uint32_t alignment, std::vector<TensorInfo>& tensors,
                    const std::string& file) {
  Layout(data, alignment, tensors, file).resolve();
}

}  // namespace tern::gguf
