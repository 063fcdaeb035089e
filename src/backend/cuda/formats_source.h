// What the repacking kernels read from the blocks of a file: for each format its device layout, the code of a weight as
// the layout stores it, and its scales.
#pragma once
#include "backend/cuda/formats.h"
#include "gguf/types.h"
#include "quant/i2_s.h"
#include "quant/iq4_xs.h"
#include "quant/pq2_0.h"
#include "quant/ptq1_0.h"
#include "quant/q1_0.h"
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
#include "quant/trits.h"

namespace tern::cuda {

using Ternary2Layout = Layout<TernaryCodes<128>, HalfScales<128, 128>, 128, false>;

/// Two-bit code 0..3 (weight - 1 .. +2) as TernaryCodes stores it.
__device__ inline int minus_weight(int code) {
  return (1 - code) & 3;
}
/// Code j of bytes that hold weight j and j + 16 of 32 in their nibbles.
__device__ inline int split_nibble(const uint8_t* qs, int j) {
  return (qs[j % 16] >> (j / 16 * 4)) & 15;
}

/// code(block, e): of weight e of a block. scale, minimum, sub, sub_minimum (block, e): of the group weight e is in.
struct NoSubs {
  template <typename Block>
  __device__ static int minimum(const Block&, int) {
    return 0;
  }
  template <typename Block>
  __device__ static int sub(const Block&, int) {
    return 0;
  }
  template <typename Block>
  __device__ static int sub_minimum(const Block&, int) {
    return 0;
  }
};
struct BlockScale : NoSubs {  // one f16 a block
  template <typename Block>
  __device__ static uint32_t scale(const Block& b, int) {
    return b.d;
  }
};

template <TensorType kType>
struct FileBlock;

template <>
struct FileBlock<TensorType::PQ2_0> : BlockScale {
  using Block = quant::BlockPQ2_0;
  using DeviceLayout = Ternary2Layout;
  __device__ static int code(const Block& b, int e) { return minus_weight((b.qs[e / 4] >> (e % 4 * 2)) & 3); }
};
template <>
struct FileBlock<TensorType::TQ2_0> : BlockScale {
  using Block = quant::BlockTQ2_0;
  using DeviceLayout = Ternary2Layout;
  __device__ static int code(const Block& b, int e) {
    return minus_weight((b.qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2)) & 3);
  }
};
template <>
struct FileBlock<TensorType::I2_S> : NoSubs {
  using Block = quant::BlockI2_S;
  using DeviceLayout = Layout<TernaryCodes<128>, NoScales, 128, false>;
  __device__ static int code(const Block& b, int e) { return minus_weight((b.qs[e % 32] >> (6 - e / 32 * 2)) & 3); }
  __device__ static uint32_t scale(const Block&, int) { return 0; }
};
template <>
struct FileBlock<TensorType::Q2_0> : BlockScale {
  using Block = quant::BlockQ2_0;
  using DeviceLayout = Layout<TernaryCodes<128>, HalfScales<32, 128, 2>, 128, true>;
  __device__ static int code(const Block& b, int e) { return minus_weight((b.qs[e / 4] >> (e % 4 * 2)) & 3); }
};
/// Weight e of a field of `width` base-3 bytes that starts at `bytes`, as TernaryCodes stores it. Products take longer
/// to find the digits of such bytes than to read two bits from memory.
__device__ inline int trit_at(const uint8_t* bytes, int width, int e) {
  return minus_weight(quant::trit_of(bytes[e % width], e / width));
}
template <>
struct FileBlock<TensorType::PTQ1_0> : BlockScale {
  using Block = quant::BlockPTQ1_0;
  using DeviceLayout = Ternary2Layout;
  __device__ static int code(const Block& b, int e) {
    return e < 80 ? trit_at(b.qs, 16, e) : e < 120 ? trit_at(b.qs + 16, 8, e - 80) : trit_at(b.qh, 2, e - 120);
  }
};
template <>
struct FileBlock<TensorType::TQ1_0> : BlockScale {
  using Block = quant::BlockTQ1_0;
  using DeviceLayout = Ternary2Layout;
  __device__ static int code(const Block& b, int e) {
    return e < 160 ? trit_at(b.qs, 32, e) : e < 240 ? trit_at(b.qs + 32, 16, e - 160) : trit_at(b.qh, 4, e - 240);
  }
};
template <>
struct FileBlock<TensorType::Q1_0> : BlockScale {
  using Block = quant::BlockQ1_0;
  using DeviceLayout = Layout<SignCodes, HalfScales<128, 128>, 128, false>;
  __device__ static int code(const Block& b, int e) { return (b.bits[e / 8] >> (e % 8)) & 1; }
};

template <>
struct FileBlock<TensorType::Q4_0> : BlockScale {
  using Block = quant::BlockQ4_0;
  using DeviceLayout = Layout<Signed4Codes, HalfScales<32, 128>, 128, true>;
  __device__ static int code(const Block& b, int e) { return split_nibble(b.qs, e); }
};
template <>
struct FileBlock<TensorType::Q4_1> : BlockScale {
  using Block = quant::BlockQ4_1;
  using DeviceLayout = Layout<Unsigned4Codes<128>, HalfScalesMinima, 128, true>;
  __device__ static int code(const Block& b, int e) { return split_nibble(b.qs, e); }
  __device__ static uint32_t minimum(const Block& b, int) { return b.m; }
};
template <>
struct FileBlock<TensorType::Q5_0> : BlockScale {
  using Block = quant::BlockQ5_0;
  using DeviceLayout = Layout<SignedTwoPlanes<4, 1, 128>, HalfScales<32, 128>, 128, true>;
  __device__ static int code(const Block& b, int e) { return split_nibble(b.qs, e) | quant::fifth_bit(b.qh, e); }
};
template <>
struct FileBlock<TensorType::Q5_1> : BlockScale {
  using Block = quant::BlockQ5_1;
  using DeviceLayout = Layout<UnsignedTwoPlanes<4, 1, 128>, HalfScalesMinima, 128, true>;
  __device__ static int code(const Block& b, int e) { return split_nibble(b.qs, e) | quant::fifth_bit(b.qh, e); }
  __device__ static uint32_t minimum(const Block& b, int) { return b.m; }
};
template <>
struct FileBlock<TensorType::Q8_0> : BlockScale {
  using Block = quant::BlockQ8_0;
  using DeviceLayout = Layout<Signed8Codes, HalfScales<32, 128>, 128, true>;
  __device__ static int code(const Block& b, int e) { return b.qs[e] & 255; }
};
template <>
struct FileBlock<TensorType::IQ4_NL> : BlockScale {
  using Block = quant::BlockIQ4_NL;
  using DeviceLayout = Layout<TableCodes<Iq4Table, 128>, HalfScales<32, 128>, 128, true>;
  __device__ static int code(const Block& b, int e) { return split_nibble(b.qs, e); }
};
template <>
struct FileBlock<TensorType::MXFP4> : NoSubs {
  using Block = quant::BlockMXFP4;
  using DeviceLayout = Layout<TableCodes<E2m1Table, 128>, ByteScales<E8m0, 32>, 128, true>;
  __device__ static int code(const Block& b, int e) { return split_nibble(b.qs, e); }
  __device__ static uint32_t scale(const Block&, int) { return 0; }
  __device__ static int sub(const Block& b, int) { return b.e; }
};
template <>
struct FileBlock<TensorType::NVFP4> : NoSubs {
  using Block = quant::BlockNVFP4;
  using DeviceLayout = Layout<TableCodes<E2m1Table, 128>, ByteScales<Ue4m3, 16>, 128, true>;
  __device__ static int code(const Block& b, int e) { return (b.qs[e / 16 * 8 + e % 8] >> (e % 16 / 8 * 4)) & 15; }
  __device__ static uint32_t scale(const Block&, int) { return 0; }
  __device__ static int sub(const Block& b, int e) { return b.scales[e / 16]; }
};

template <>
struct FileBlock<TensorType::Q2_K> : BlockScale {
  using Block = quant::BlockQ2_K;
  using DeviceLayout = Layout<Unsigned2Codes<256>, SuperScales<Subs::kNibbles>, 256, false>;
  __device__ static int code(const Block& b, int e) { return (b.qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2)) & 3; }
  __device__ static uint32_t minimum(const Block& b, int) { return b.dmin; }
  __device__ static int sub(const Block& b, int e) { return b.scales[e / 16]; }
};
template <>
struct FileBlock<TensorType::Q3_K> : BlockScale {
  using Block = quant::BlockQ3_K;
  using DeviceLayout = Layout<SignedTwoPlanes<2, 1, 256>, SuperScales<Subs::kBytes16>, 256, false>;
  __device__ static int code(const Block& b, int e) {
    const int low = (b.qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2)) & 3;
    return low | ((b.hmask[e % 32] >> (e / 32)) & 1) << 2;
  }
  __device__ static int sub(const Block& b, int e) { return quant::group_scale(b, e / 16) & 255; }
};
template <>
struct FileBlock<TensorType::Q4_K> : BlockScale {
  using Block = quant::BlockQ4_K;
  using DeviceLayout = Layout<Unsigned4Codes<256>, SuperScales<Subs::kWithMin8>, 256, false>;
  __device__ static int code(const Block& b, int e) { return (b.qs[e / 64 * 32 + e % 32] >> (e % 64 / 32 * 4)) & 15; }
  __device__ static uint32_t minimum(const Block& b, int) { return b.dmin; }
  __device__ static int sub(const Block& b, int e) { return quant::unpack_scale_min(b.scales, e / 32).scale; }
  __device__ static int sub_minimum(const Block& b, int e) { return quant::unpack_scale_min(b.scales, e / 32).minimum; }
};
template <>
struct FileBlock<TensorType::Q5_K> : BlockScale {
  using Block = quant::BlockQ5_K;
  using DeviceLayout = Layout<UnsignedTwoPlanes<4, 1, 256>, SuperScales<Subs::kWithMin8>, 256, false>;
  __device__ static int code(const Block& b, int e) {
    return ((b.qs[e / 64 * 32 + e % 32] >> (e % 64 / 32 * 4)) & 15) | ((b.qh[e % 32] >> (e / 32)) & 1) << 4;
  }
  __device__ static uint32_t minimum(const Block& b, int) { return b.dmin; }
  __device__ static int sub(const Block& b, int e) { return quant::unpack_scale_min(b.scales, e / 32).scale; }
  __device__ static int sub_minimum(const Block& b, int e) { return quant::unpack_scale_min(b.scales, e / 32).minimum; }
};
template <>
struct FileBlock<TensorType::Q6_K> : BlockScale {
  using Block = quant::BlockQ6_K;
  using DeviceLayout = Layout<SignedTwoPlanes<4, 2, 256>, SuperScales<Subs::kBytes16>, 256, false>;
  __device__ static int code(const Block& b, int e) {
    const int half = e / 128, s = e % 128 / 32, p = e % 32;
    return ((b.ql[64 * half + s % 2 * 32 + p] >> (s / 2 * 4)) & 15) | ((b.qh[32 * half + p] >> (2 * s)) & 3) << 4;
  }
  __device__ static int sub(const Block& b, int e) { return b.scales[e / 16] & 255; }
};
template <>
struct FileBlock<TensorType::IQ4_XS> : BlockScale {
  using Block = quant::BlockIQ4_XS;
  using DeviceLayout = Layout<TableCodes<Iq4Table, 256>, SuperScales<Subs::kBytes8>, 256, false>;
  __device__ static int code(const Block& b, int e) { return split_nibble(b.qs + e / 32 * 16, e % 32); }
  __device__ static int sub(const Block& b, int e) { return quant::group_scale(b, e / 32) & 255; }
};

/// The rows of a piece of a file as a tile reads them.
template <TensorType kType>
struct FileTile {
  using S = FileBlock<kType>;
  using Block = typename S::Block;
  using L = typename S::DeviceLayout;
  const uint8_t* rows;  // of the tile
  int64_t row_bytes;
  int64_t first_col, cols;  // of the unit, of the matrix
  int n_rows;               // of the tile that exist

  __device__ const Block* block(int row, int64_t col) const {
    if (row >= n_rows || col >= cols) return nullptr;
    return reinterpret_cast<const Block*>(rows + row * row_bytes) + col / Block::kElements;
  }
  /// f(block, element) of a weight, 0 outside of the matrix.
  template <typename F>
  __device__ uint32_t at(int row, int col, F f) const {
    const Block* b = block(row, first_col + col);
    return b ? static_cast<uint32_t>(f(*b, static_cast<int>((first_col + col) % Block::kElements))) : 0u;
  }
  __device__ uint32_t code(int row, int col) const {
    return at(row, col, [](const Block& b, int e) { return S::code(b, e); });
  }
  static constexpr int kFoldCols = L::Scales::kFoldCols;
  __device__ uint32_t scale(int row, int fold) const {
    return at(row, fold * kFoldCols, [](const Block& b, int e) { return S::scale(b, e); });
  }
  __device__ uint32_t minimum(int row, int fold) const {
    return at(row, fold * kFoldCols, [](const Block& b, int e) { return S::minimum(b, e); });
  }
  __device__ uint32_t sub(int row, int fold) const {
    return at(row, fold * kFoldCols, [](const Block& b, int e) { return S::sub(b, e); });
  }
  __device__ uint32_t sub_minimum(int row, int fold) const {
    return at(row, fold * kFoldCols, [](const Block& b, int e) { return S::sub_minimum(b, e); });
  }
  /// Word i of the unit.
  __device__ uint32_t word(int i) const {
    constexpr int kCodeWords = L::Codes::kBytes / 4;
    if (i < kCodeWords) return L::Codes::pack(i, [this](int row, int col) { return code(row, col); });
    return L::Scales::pack(i - kCodeWords, *this);
  }
};

}  // namespace tern::cuda
