// What the CUDA backend computes beside matrix products: one launch each, on plain device pointers. They know nothing
// of plans or programs; the formulas are those of plan/plan.h. Nothing here waits or allocates, so all of it can be
// captured into a graph. Activations are f32, [rows, cols], rows without gaps.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/shortlist.h"
#include "plan/step.h"

namespace tern::cuda {

/// The parts of a Step that kernels read, at addresses that stay for the life of a program.
struct DeviceStep {
  const int32_t* tokens = nullptr;      // [rows]
  const int32_t* positions = nullptr;   // [rows]
  const int32_t* seq_of_row = nullptr;  // [rows]
  const SeqRows* seqs = nullptr;        // [n_seqs]
  const int32_t* out_rows = nullptr;    // [outputs]
  const Wanted* wanted = nullptr;       // [outputs], in a Step whose wishes count
  const int32_t* pages = nullptr;       // page tables, as Step::pages
};

/// Groups of `group` consecutive floats: `groups` of them in all rows together.
struct Groups {
  int64_t groups = 0, group = 0;
};

void rms_norm(cudaStream_t s, const float* x, const float* weight, float eps, Groups g, float* out);
void l2_norm(cudaStream_t s, const float* x, float eps, Groups g, float* out);
void add(cudaStream_t s, const float* a, const float* b, int64_t n, float* out);
/// `kind` in the order of Gate. One gate a row when `gate_cols` is 1.
void glu(cudaStream_t s, int kind, const float* a, const float* b, int64_t rows, int64_t cols, int64_t gate_cols,
         float* out);

/// Cosine and sine of position * freq[i], times `magnitude`, as pairs: angles [rows][pairs].
void rope_angles(cudaStream_t s, const double* freq, int64_t pairs, float magnitude, const int32_t* positions,
                 int64_t rows, float2* angles);
struct RopeShape {
  int64_t rows = 0, cols = 0, head_dim = 0, pairs = 0;
  bool neox = true;
};
void rope(cudaStream_t s, const float* x, const float2* angles, const RopeShape& shape, float* out);

/// For every chunk of `stride` floats the `width` from `offset`; `chunks` in all rows together.
void take(cudaStream_t s, const float* x, int64_t chunks, int64_t offset, int64_t width, int64_t stride, float* out);
void permute_heads(cudaStream_t s, const float* x, int64_t rows, int64_t k_heads, int64_t rep, int64_t head_dim,
                   float* out);
void pick_rows(cudaStream_t s, const float* x, const int32_t* rows, int64_t outputs, int64_t cols, float* out);

/// ids [rows][used], weights [rows][used] of logits [rows][experts]. Ids are in range whatever the logits.
struct RouterShape {
  int64_t rows = 0;
  int32_t experts = 0, used = 0;
  bool normalise = true;
  float scale = 1;
};
void router(cudaStream_t s, const float* logits, const RouterShape& shape, int32_t* ids, float* weights);
void expert_sum(cudaStream_t s, const float* x, const float* weights, int64_t rows, int64_t used, int64_t cols,
                float* out);

/// What is wanted[r] of the first `tokens` columns of logits [outputs][cols], where it is not the logits. The k best of
/// slices of a row, then of those the k best, then the draw: the same bits every time. Beside them it needs scratch,
/// for every output shortlist_scratch_bytes().
struct ShortlistShape {
  int64_t outputs = 0, cols = 0, tokens = 0;
};
/// Where they go: [outputs] lists and behind them [outputs] tokens.
inline constexpr int64_t kChosenBytes = sizeof(Shortlist) + sizeof(int32_t);
int64_t shortlist_scratch_bytes(int64_t tokens);
void shortlists(cudaStream_t s, const float* logits, const ShortlistShape& shape, const Wanted* wanted,
                std::byte* scratch, Shortlist* chosen);

// ---- Recurrences ----

/// One recurrent layer: slot i of the conv history at conv + i * conv_floats ([taps-1][channels]), of the delta state
/// at delta + i * delta_floats ([v_heads][dim (value)][dim (key)]).
struct StateView {
  float *conv = nullptr, *delta = nullptr;
  int64_t conv_floats = 0, delta_floats = 0;
};
/// kernel [channels][taps], as in files. taps <= kMostTaps.
inline constexpr int64_t kMostTaps = 8;
void conv_silu(cudaStream_t s, const float* x, const float* kernel, const DeviceStep& step, int64_t rows,
               int64_t n_seqs, int64_t channels, int64_t taps, const StateView& state, float* out);

/// head_dim is a multiple of 4, at most kMostDeltaDim.
inline constexpr int64_t kMostDeltaDim = 256;
struct DeltaArgs {
  const float *q = nullptr, *k = nullptr, *v = nullptr, *alpha = nullptr, *beta = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;  // floats from a row to the next
  const float *a = nullptr, *dt = nullptr;
  bool normalise = false;  // l2_norm the heads of q and k, with eps
  float eps = 0;
  int32_t k_heads = 0, v_heads = 0;
  int64_t head_dim = 0;
};
void delta_rule(cudaStream_t s, const DeltaArgs& args, const DeviceStep& step, int64_t rows, int64_t n_seqs,
                const StateView& state, float* out);
/// The same for prompts, several tokens at a time on the tensor cores, to the last bits of f32; decays are at most 1.
/// `scratch` has delta_chunks_bytes. `supports` promises what it says.
bool delta_chunks_supports(const DeltaArgs& args, int compute_capability);
int64_t delta_chunks_bytes(const DeltaArgs& args, int64_t rows, int64_t n_seqs);
void delta_chunks(cudaStream_t s, const DeltaArgs& args, const DeviceStep& step, int64_t rows, int64_t n_seqs,
                  const StateView& state, std::byte* scratch, float* out);

// ---- Attention ----

/// How a key or value is stored.
enum class PageType : uint8_t { kF32, kF16, kQ8 };

/// One attention layer of the cache. Page p of KV head h has its keys at base + p*page_bytes + h*k_head_bytes, its
/// values v_offset further on (with v_head_bytes): [64 tokens][dim], q8_0 followed by f16 scales [64][dim/32].
struct KvView {
  char* base = nullptr;
  int64_t page_bytes = 0, k_head_bytes = 0, v_head_bytes = 0, v_offset = 0;
  PageType k_type = PageType::kF16, v_type = PageType::kF16;
};
struct AttendShape {
  int32_t heads = 0, kv_heads = 0;
  int64_t dim_k = 0, dim_v = 0;
  float scale = 0;
};
/// The heads of one input on their way from a projection: head h of row r at x + r*row_stride + h*head_stride.
struct HeadInput {
  const float* x = nullptr;
  int64_t row_stride = 0, head_stride = 0;
  const float* norm = nullptr;  // rms_norm of the head with these weights, or none
  float eps = 0;
  const float2* angles = nullptr;  // then rope with the row's angles [rows][pairs], or none
};
struct AttendInputs {
  HeadInput q, k, v;       // q.x is null when the queries are where attention reads them
  float* q_out = nullptr;  // [rows][heads][dim_k]
  int64_t pairs = 0;       // of the rotary embedding
  bool neox = true;
};
/// Brings queries into q_out and writes the rows' keys and values into their pages.
void attend_inputs(cudaStream_t s, const AttendInputs& in, const DeviceStep& step, int64_t rows,
                   const AttendShape& shape, const KvView& kv);

/// Dimensions of heads that attend() takes: multiples of 8 up to this.
inline constexpr int64_t kMostHeadDim = 256;
/// Most parts that the context of one row is cut into.
inline constexpr int64_t kMostParts = 64;
/// Floats of partial results, and counters (zeroed once, left zero) that attend() needs.
int64_t attend_scratch_floats(const AttendShape& shape, int64_t rows, int64_t parts);
int64_t attend_counters(const AttendShape& shape, int64_t rows);
/// Causal attention of every row over its sequence's cache (which has the rows already). Each row's context is cut into
/// at most `parts` parts of whole pages, put together by the last part to finish, in a fixed order.
void attend(cudaStream_t s, const float* q, const DeviceStep& step, int64_t rows, const AttendShape& shape,
            const KvView& kv, int64_t parts, float* scratch, int32_t* counters, float* out);

/// The same on the tensor cores, for few rows (as attend) and for many: queries and weights are rounded to f16. With
/// in.q.x attend_few does what attend_inputs does, too, in place of reading `q`: then every sequence has one row.
/// `supports` promises what it says.
bool attend_few_supports(const AttendShape& shape, const KvView& kv, int compute_capability);
void attend_few(cudaStream_t s, const float* q, const AttendInputs& in, const DeviceStep& step, int64_t rows,
                const AttendShape& shape, const KvView& kv, int64_t parts, float* scratch, int32_t* counters,
                float* out);
bool attend_tiles_supports(const AttendShape& shape, const KvView& kv, int compute_capability);
void attend_tiles(cudaStream_t s, const float* q, const DeviceStep& step, int64_t rows, int64_t n_seqs,
                  const AttendShape& shape, const KvView& kv, float* out);

}  // namespace tern::cuda
