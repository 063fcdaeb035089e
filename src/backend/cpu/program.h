// A compiled plan of the CPU backend and the walk over it.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cache_memory.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/schedule.h"
#include "base/memory.h"
#include "base/thread_pool.h"

namespace tern::cpu {

/// Activations and threads' scratch of the Step that runs: one at a time, so all programs share it, and it is as large
/// as the largest needs.
struct Workspace {
  Memory arena, scratch;
  void fit(int64_t arena_bytes, int64_t scratch_bytes);
};

/// What every program of a backend shares.
struct Machine {
  const Plan* plan = nullptr;
  const Ops* ops = nullptr;
  Weights weights;
  CacheMemory cache;
  std::unique_ptr<ThreadPool> pool;
  Workspace workspace{};
};

/// One tile of attention of a Step: the same for every layer.
struct AttendTask {
  int32_t seq, row, rows;        // query rows [row, row + rows) of the batch
  int32_t page_begin, page_end;  // of the sequence
  int32_t part = -1;             // index of its partial result, -1 when it is the whole
  bool in_bytes = false;         // of AttendTile
};

/// The pages of a sequence that a Step appends to. The first and the last of them are tail pages of its slot (which
/// half of it), those in between are `middle` and following of the program's own.
struct Tail {
  int32_t first_page = 0, last_page = 0;
  int32_t first_half = 0, last_half = 0;
  int32_t middle = 0;
};

/// Where the unquantised pages of one KV head of a kivi cache lie while a Step appends to them.
struct ExactPages {
  std::byte* tail;
  int64_t half_bytes;
  std::byte* middle;
  int64_t middle_bytes;
  std::byte* at(const Tail& t, int32_t page) const {
    if (page == t.last_page) return tail + t.last_half * half_bytes;
    if (page == t.first_page) return tail + t.first_half * half_bytes;
    return middle + (t.middle + page - t.first_page - 1) * middle_bytes;
  }
};

/// How the rows of a Step spread over experts: slot order is by expert, then by row.
struct Grouping {
  struct Active {
    int32_t expert, first, count;  // slots [first, first + count)
  };
  std::vector<int32_t> slot_of_pair{}, pair_of_slot{};  // pair = row * used + j
  std::vector<int32_t> next{};                          // one an expert: counting sort
  std::vector<Active> active{};                         // the first n_active are valid
  int32_t n_active = 0, used = 0, experts = 0;
};

class CpuProgram final : public Program {
 public:
  CpuProgram(Machine& machine, const ProgramLimits& limits, bool eager);

  /// Runs every phase of a Step; `logits` [out_rows, n_vocab].
  void run(const Step& step, std::span<float> logits);
  /// The same op by op on an eager schedule of its own; the sink sees each op right after it ran.
  void run_traced(const Step& step, std::span<float> logits, const std::function<void(const OpTrace&)>& sink);

 private:
  // ---- A Step (program.cpp) ----
  void begin(const Step& step, std::span<float> logits);
  void place_buffers();
  void run_phases(uint32_t first, uint32_t last);
  ThreadPool::Phase advance(uint32_t phase, int thread);
  bool serial(const Phase& p) const { return p.light && rows() <= 1; }
  uint32_t items(const Phase& p) const;
  uint32_t grain(const Phase& p) const;
  int64_t node_items(const Node& n) const;
  ThreadPool::Phase open(const Phase& p, uint32_t items) const;
  void expect_weights(const Phase& p, int thread) const;
  void run_range(const Phase& p, uint32_t begin, uint32_t end, int thread);
  void run_item(const Phase& p, int64_t item, int thread);
  int64_t rows() const { return step_->rows(); }
  const std::vector<Chunk>& chunks(const Phase& p) const { return rows() <= kFewRows ? p.few : p.many; }

  // ---- Attention (program_attend.cpp) ----
  void open_tails();
  int32_t tile_rows() const;
  void plan_attention();
  ExactPages exact_keys(const KvLayerMemory& kv, const SeqRows& seq, int64_t head) const;
  ExactPages exact_values(const KvLayerMemory& kv, const SeqRows& seq, int64_t head) const;
  void write_kv(const Node& n, int64_t row, int thread);
  const std::byte* first_keys(const Node& n, int64_t item) const;
  void attend(const Node& n, int64_t item, int thread);
  void merge_parts(const Node& n, int64_t row, int thread);

  // ---- Rows (program_rows.cpp) ----
  void row_node(const Node& n, int64_t row, int thread);
  void row_op(const Node& n, const Op& op, int64_t row, int thread);
  void angles(const Node& n, int64_t row, int thread);
  void round_row(const Node& n, int64_t row, int thread);
  void round_experts(const Node& n, int64_t row, int thread);
  void group_experts(const Node& n);

  // ---- Items (program_items.cpp) ----
  void linear(const Node& n, int64_t row_begin, int64_t row_end);
  void conv(const Node& n, int64_t item);
  void delta(const Node& n, int64_t item, int thread);
  void expert_linear(const Node& n, int64_t item, int thread);
  int64_t expert_chunk_rows(const Node& n) const;

  const Op& op(const Node& n) const { return machine_.plan->ops[static_cast<size_t>(n.op)]; }
  template <typename Args>
  const Args& args(const Node& n) const {
    return *std::get_if<Args>(&op(n).args);
  }
  std::byte* at(int32_t buffer, int64_t row, int thread) const {
    const auto i = static_cast<size_t>(buffer);
    return base_[i] + row * row_step_[i] + thread * thread_step_[i];
  }
  float* f32(int32_t buffer, int64_t row, int thread = 0) const {
    return reinterpret_cast<float*>(at(buffer, row, thread));
  }
  int32_t* i32(int32_t buffer, int64_t row, int thread = 0) const {
    return reinterpret_cast<int32_t*>(at(buffer, row, thread));
  }
  float* scratch(int thread) const {
    return reinterpret_cast<float*>(scratch_ + thread * scratch_step_ + schedule_.local_bytes);
  }

  Machine& machine_;
  const Plan& plan_;                    // the machine's, or a part of it
  std::unique_ptr<CpuProgram> traced_;  // made by the first run_traced() of a program that is not eager
  const ProgramLimits limits_;
  const bool eager_;
  Schedule schedule_;
  std::byte *arena_ = nullptr, *scratch_ = nullptr;  // of the workspace, as base_ knows it
  int64_t scratch_step_ = 0;                         // of one thread: local buffers, then whatever an item needs
  std::vector<std::byte*> base_;
  std::vector<int64_t> row_step_, thread_step_;
  Memory middle_;  // pages that a Step fills from end to end, unquantised, of one layer at a time (kivi)
  int64_t middle_page_bytes_ = 0;
  int64_t attend_parts_ = 0;
  int32_t least_kv_heads_ = 1;

  // Of the current Step.
  const Step* step_ = nullptr;
  std::vector<int32_t> position_, seq_of_row_;
  std::vector<int32_t> first_part_, n_parts_;  // of a row's attention; 0 parts: nothing to merge
  std::vector<AttendTask> tasks_;
  std::vector<Tail> tails_;  // of the Step's sequences
  int32_t n_tasks_ = 0;
  std::vector<Grouping> groupings_;
  uint32_t phase_ = 0, last_phase_ = 0;  // the open one, and the end of the walk
};

inline constexpr int64_t kTasksAThread = 4;  // of attention: enough that a slow thread is made up for
/// Most and least rows of a tile of attention: the more, the fewer times a page is read and turned into what the tile
/// multiplies; the fewer, the more tiles there are for the threads.
inline constexpr int32_t kTileRows = 64, kLeastTileRows = 16;
/// Floats in which an item of attention packs the pages of keys, or of values, that a Step adds to a kivi cache.
inline int64_t fresh_scratch(int64_t rows, int64_t dim) noexcept {
  return (rows / kPageTokens + 2) * kv_bytes(KvType::kKivi4, dim * kPageTokens) / 4;
}
inline constexpr int64_t kConvChannels = 512;  // of one item of a convolution
inline constexpr int64_t kExpertRows = 64;     // activation rows of one expert product at a time

}  // namespace tern::cpu
