// What the CPU backend computes beside matrix products: functions on plain rows, one table of them per instruction set.
// They know nothing of plans, steps or threads. The formulas are those of plan/plan.h.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tern::cpu {

/// K or V values of one page (64 tokens) of one KV head. Tokens run along the vectors in K, so that the scores of a
/// page need no horizontal sums: K is [head_dim][64] and V [64][head_dim].
/// q8_0, q4_0: codes, then f16 scales, one for 32 dims of a token: K [head_dim/32][64], V [64][head_dim/32]. A byte of
/// q4_0 holds dims j (low) and j + 16 of those 32; its keys are rotated (ops_kv.h).
/// kivi, kivi4: codes of 2 and 4 bits, then f16 scales, then f16 least values, one for 32 elements along a row of
/// either matrix.
enum class PageType : uint8_t { kF32, kF16, kQ8, kQ4, kKivi, kKivi4 };  // in the order of KvType
constexpr bool is_kivi(PageType type) noexcept {
  return type >= PageType::kKivi;
}
inline constexpr int64_t kMostHeadDim = 1024;  // of a key that is rotated

/// A key or value of one token, written into its page.
struct KvEntry {
  PageType type;
  const float* x;  // [dim]
  int64_t dim;
  int32_t token;  // 0..63 in the page
};

/// Where the keys or values of one KV head lie. Page p of the sequence: base + pages[p] * page_bytes, except for kivi
/// (see AttendTile): `own` (as f16), `fresh` + (p - fresh_begin) * bytes.
struct PageSource {
  PageType type = PageType::kF32;
  const std::byte* base = nullptr;
  int64_t bytes = 0;  // of this head in one page
  const std::byte *own = nullptr, *fresh = nullptr;
};

/// Rows of one page of their sequence in a Step from which their attention may read other pages in bytes. Rows of a
/// page, not of a tile: how pages are cut into tiles depends on the number of threads, and results must not.
inline constexpr int32_t kLeastByteRows = 16;

/// Attention of `rows` consecutive query rows of one sequence, all query heads of one KV head, over pages
/// [page_begin, page_end) of the sequence. Row i sees tokens [0, position + i].
struct AttendTile {
  const float* q = nullptr;  // first of the `group` heads of row 0; rows are q_stride floats apart
  int64_t q_stride = 0;
  int32_t rows = 0, group = 0, position = 0;
  int64_t dim_k = 0, dim_v = 0;
  float scale = 0;
  PageSource k, v;
  int64_t page_bytes = 0;
  const int32_t* pages = nullptr;  // the sequence's page table
  int32_t page_begin = 0, page_end = 0;
  const std::byte* next = nullptr;  // page of keys that the thread will probably read behind this tile's
  bool in_bytes = false;            // see kLeastByteRows
  // kivi: the page of all rows, and the first of those before it that were filled by this very Step.
  int32_t own_page = -1, fresh_begin = INT32_MAX;
  float* out = nullptr;  // as q, heads of dim_v; or, when partial, [group][dim_v + 2]: sums not yet divided, top,
                         // total; their weights are powers of two: 2^(score * log2(e) - top)
  int64_t out_stride = 0;
  bool partial = false;
  float* scratch = nullptr;  // attend_scratch() floats
};
/// Floats of a ByteTile (ops_attend_bytes.h).
constexpr int64_t byte_scratch(int64_t vectors, int64_t dim_k, int64_t dim_v) noexcept {
  return 64 * (dim_k + dim_v) / 4 + vectors * (dim_k / 4 + 1) + 2 * 64 + dim_v;
}
/// Floats of AttendTile::scratch, for vectors of up to 16 floats.
constexpr int64_t attend_scratch(int64_t vectors, int64_t dim_k, int64_t dim_v) noexcept {
  return vectors * (dim_k + dim_v + 64 + 1 + 16) + (64 + 4) * (dim_k > dim_v ? dim_k : dim_v) +
         byte_scratch(vectors, dim_k, dim_v);
}

/// Channels [0, channels) of a causal convolution over `rows` rows of one sequence; kernel [taps][stride].
struct ConvBlock {
  const float *x = nullptr, *kernel = nullptr;
  const float* history_in = nullptr;  // [taps-1][stride]; nullptr: zeros. May be history_out
  float *history_out = nullptr, *out = nullptr;
  int64_t rows = 0, channels = 0, taps = 0;
  int64_t stride = 0;  // floats from one row, tap or history entry to the next
};

/// One value head of the gated delta rule over `rows` rows of one sequence; its state is kept as S^T
/// [dim (key)][dim (value)].
struct DeltaHead {
  const float *q = nullptr, *k = nullptr, *v = nullptr, *alpha = nullptr, *beta = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, alpha_stride = 0, beta_stride = 0;  // floats a row
  float a = 0, dt = 0;
  const float* s_in = nullptr;  // nullptr: zeros. May be s_out
  float *s_out = nullptr, *out = nullptr;
  int64_t out_stride = 0, rows = 0, dim = 0;
  float* scratch = nullptr;  // delta_scratch() floats
};
/// Floats of DeltaHead::scratch, however many rows.
inline constexpr int64_t kDeltaChunk = 64;  // rows taken at once
constexpr int64_t delta_scratch(int64_t dim) noexcept {
  return 2 * kDeltaChunk * (dim + kDeltaChunk);
}

struct Ops {
  const char* isa;
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t group, int64_t n, float* out) noexcept;
  void (*l2_norm)(const float* x, float eps, int64_t group, int64_t n, float* out) noexcept;
  void (*add)(const float* a, const float* b, int64_t n, float* out) noexcept;
  void (*multiply)(const float* a, const float* b, int64_t n, float* out) noexcept;
  /// y += a * x; y = a * x.
  void (*add_scaled)(float a, const float* x, int64_t n, float* y) noexcept;
  void (*scale)(float a, const float* x, int64_t n, float* y) noexcept;
  /// out = gate(a) * b, by Gate: silu, relu squared, sigmoid.
  void (*glu[3])(const float* a, const float* b, int64_t n, float* out) noexcept;
  /// Rotates the first 2*pairs dims of every head of x[n]; cos and sin carry the magnitude.
  void (*rope[2])(const float* x, const float* cos, const float* sin, int64_t pairs, int64_t head_dim, int64_t n,
                  float* out) noexcept;  // [0] neighbours (2i, 2i+1), [1] neox (i, i+pairs)
  /// x <- H x blockwise, the order of additions of quant::walsh_hadamard.
  void (*hadamard)(float* x, int64_t n, int64_t block) noexcept;
  void (*write_k)(const KvEntry& e, std::byte* page) noexcept;
  void (*write_v)(const KvEntry& e, std::byte* page) noexcept;
  /// An f16 page of `n` elements as kivi, as kivi4.
  void (*pack_kivi)(const uint16_t* exact, int64_t n, std::byte* page) noexcept;
  void (*pack_kivi4)(const uint16_t* exact, int64_t n, std::byte* page) noexcept;
  void (*attend)(const AttendTile& t) noexcept;
  void (*conv_silu)(const ConvBlock& c) noexcept;
  void (*delta_rule)(const DeltaHead& d) noexcept;
};

extern const Ops kOpsScalar, kOpsAvx2, kOpsAvx512, kOpsNeon;

}  // namespace tern::cpu
