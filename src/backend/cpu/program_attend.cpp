// Attention on the CPU: which rows and pages make a task, where keys and values are written, and parts put together.
#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/cpu/program.h"
#include "base/checked.h"
#include "base/error.h"

namespace tern::cpu {
namespace {

constexpr int32_t kPartPages = 4;  // least pages of a part of a long context

/// The keys or the values of one KV head of one attention op.
struct Side {
  const Ops& ops;
  PageType type;
  int64_t values, bytes;  // of the head in a page; bytes in the cache
  std::byte* pages;       // page p of the cache at pages + p * page_bytes
  int64_t page_bytes;
  ExactPages exact;  // kivi
};

struct TaskPages {
  const Tail& tail;
  const int32_t* table;
  int32_t own;     // page of the task's rows
  bool fills_own;  // the task has the last row of it
};

/// What a task reads. For kivi the pages that the Step fills are packed here once more, because the cache gets each
/// only from the task that has its last row.
PageSource source(const Side& s, const TaskPages& t, float* memory) {
  PageSource out{.type = s.type, .base = s.pages, .bytes = s.bytes};
  if (!is_kivi(s.type)) return out;
  auto* fresh = reinterpret_cast<std::byte*>(memory);
  const auto pack = [&](const std::byte* page, std::byte* to) {
    const auto to_codes = s.type == PageType::kKivi ? s.ops.pack_kivi : s.ops.pack_kivi4;
    to_codes(reinterpret_cast<const uint16_t*>(page), s.values, to);
  };
  for (int32_t page = t.tail.first_page; page < t.own; ++page) {
    pack(s.exact.at(t.tail, page), fresh + (page - t.tail.first_page) * s.bytes);
  }
  out.fresh = fresh;
  out.own = s.exact.at(t.tail, t.own);
  if (t.fills_own) pack(out.own, s.pages + t.table[t.own] * s.page_bytes);
  return out;
}

}  // namespace

/// Finds the tail page that each sequence goes on filling, and a second one for a Step that goes beyond it.
void CpuProgram::open_tails() {
  const CacheMemory& cache = machine_.cache;
  if (!cache.shape().has_tails()) return;
  CHECK(middle_.size() > 0, "a program compiled before the cache was reserved as kivi");
  int32_t middle = 0;
  for (size_t i = 0; i < step_->seqs.size(); ++i) {
    const SeqRows& seq = step_->seqs[i];
    Tail t{.first_page = seq.position / kPageTokens, .last_page = (seq.position + seq.n_rows - 1) / kPageTokens};
    if (seq.position % kPageTokens != 0) {
      CHECK(seq.state_in != kZeroState, "the newest tokens of a sequence at {} are nowhere", seq.position);
      if (seq.state_in != seq.state_out) cache.copy_tails(seq.state_in, seq.state_out);
      t.first_half = cache.tail_half(seq.state_out) & 1;
    }
    t.last_half = t.last_page == t.first_page ? t.first_half : 1 - t.first_half;
    cache.tail_half(seq.state_out) = t.last_half;
    t.middle = middle;
    middle += std::max(0, t.last_page - t.first_page - 1);
    tails_[i] = t;
  }
}

/// As many as leave every thread some tasks.
int32_t CpuProgram::tile_rows() const {
  int32_t most = kTileRows;
  for (; most > kLeastTileRows; most /= 2) {
    int64_t tiles = 0;
    for (const SeqRows& seq : step_->seqs) tiles += ceil_div(seq.n_rows, most);
    if (tiles * least_kv_heads_ >= kTasksAThread * machine_.pool->size()) break;
  }
  return most;
}

void CpuProgram::plan_attention() {
  const int32_t most_rows = tile_rows();
  int64_t tiles = 0;
  for (const SeqRows& seq : step_->seqs) tiles += ceil_div(seq.n_rows, most_rows);
  const auto most_parts = static_cast<int32_t>(tiles == 0 ? 1 : ceil_div(attend_parts_ / 2, tiles));
  n_tasks_ = 0;
  int32_t parts = 0;
  for (size_t s = 0; s < step_->seqs.size(); ++s) {
    const SeqRows& seq = step_->seqs[s];
    const auto index = static_cast<int32_t>(s);
    const int32_t pages = ceil_div(seq.position + seq.n_rows, kPageTokens);
    const int32_t split = seq.n_rows == 1 ? std::min(most_parts, pages / kPartPages) : 1;
    if (split > 1) {
      CHECK(parts + split <= attend_parts_, "{} parts of attention", parts + split);
      const auto row = static_cast<size_t>(seq.first_row);
      first_part_[row] = parts;
      n_parts_[row] = split;
      for (int32_t i = 0; i < split; ++i) {
        tasks_[static_cast<size_t>(n_tasks_++)] = {index,  seq.first_row, 1, pages * i / split, pages * (i + 1) / split,
                                                   parts++};
      }
      continue;
    }
    int32_t row = seq.n_rows;
    while (row > 0) {  // longest first; tiles share the rows of a page of their sequence
      const int32_t page = (seq.position + row - 1) / kPageTokens;
      const int32_t first = std::max(0, page * kPageTokens - seq.position), in_page = row - first;
      for (int32_t left = ceil_div(in_page, most_rows); left > 0; --left) {
        const int32_t end = std::exchange(row, first + (row - first) * (left - 1) / left);
        tasks_[static_cast<size_t>(n_tasks_++)] = {.seq = index,
                                                   .row = seq.first_row + row,
                                                   .rows = end - row,
                                                   .page_begin = 0,
                                                   .page_end = page + 1,
                                                   .in_bytes = in_page >= kLeastByteRows};
      }
    }
  }
}

ExactPages CpuProgram::exact_keys(const KvLayerMemory& kv, const SeqRows& seq, int64_t head) const {
  return {.tail = kv.k_tail(seq.state_out, 0, head),
          .half_bytes = kv.kv_heads * kv.k_tail_bytes,
          .middle = middle_.data() + head * kv.k_tail_bytes,
          .middle_bytes = middle_page_bytes_};
}

ExactPages CpuProgram::exact_values(const KvLayerMemory& kv, const SeqRows& seq, int64_t head) const {
  return {.tail = kv.v_tail(seq.state_out, 0, head),
          .half_bytes = kv.kv_heads * kv.v_tail_bytes,
          .middle = middle_.data() + kv.kv_heads * kv.k_tail_bytes + head * kv.v_tail_bytes,
          .middle_bytes = middle_page_bytes_};
}

void CpuProgram::write_kv(const Node& n, int64_t row, int thread) {
  const auto& a = args<AttendArgs>(n);
  const KvLayerMemory& kv = machine_.cache.kv(a.cache);
  const CacheShape& shape = machine_.cache.shape();
  const Ops& ops = *machine_.ops;
  const int32_t position = position_[static_cast<size_t>(row)], token = position % kPageTokens;
  const int32_t seq_page = position / kPageTokens;
  const int32_t s = seq_of_row_[static_cast<size_t>(row)];
  const SeqRows& seq = step_->seqs[static_cast<size_t>(s)];
  const Tail& tail = tails_[static_cast<size_t>(s)];
  const int64_t page = step_->pages[static_cast<size_t>(seq.first_page + seq_page)] * kv.page_bytes;
  const float *k = f32(op(n).inputs[1].id, row, thread), *v = f32(op(n).inputs[2].id, row, thread);
  for (int64_t head = 0; head < a.kv_heads; ++head) {
    KvEntry entry{static_cast<PageType>(shape.k), k + head * a.head_dim_k, a.head_dim_k, token};
    std::byte* to = kv.k(head) + page;
    if (kivi_bits(shape.k) > 0) {
      entry.type = PageType::kF16;
      to = exact_keys(kv, seq, head).at(tail, seq_page);
    }
    ops.write_k(entry, to);
    entry = {static_cast<PageType>(shape.v), v + head * a.head_dim_v, a.head_dim_v, token};
    to = kv.v(head) + page;
    if (kivi_bits(shape.v) > 0) {
      entry.type = PageType::kF16;
      to = exact_values(kv, seq, head).at(tail, seq_page);
    }
    ops.write_v(entry, to);
  }
}

/// The first keys that an item reads; nullptr behind the last.
const std::byte* CpuProgram::first_keys(const Node& n, int64_t item) const {
  const auto& a = args<AttendArgs>(n);
  if (item >= node_items(n)) return nullptr;
  const AttendTask& task = tasks_[static_cast<size_t>(item / a.kv_heads)];
  const KvLayerMemory& kv = machine_.cache.kv(a.cache);
  const int32_t first = step_->seqs[static_cast<size_t>(task.seq)].first_page + task.page_begin;
  return kv.k(item % a.kv_heads) + step_->pages[static_cast<size_t>(first)] * kv.page_bytes;
}

void CpuProgram::attend(const Node& n, int64_t item, int thread) {
  const auto& a = args<AttendArgs>(n);
  const AttendTask& task = tasks_[static_cast<size_t>(item / a.kv_heads)];
  const int64_t head = item % a.kv_heads;
  const int32_t group = a.heads / a.kv_heads;
  const KvLayerMemory& kv = machine_.cache.kv(a.cache);
  const CacheShape& shape = machine_.cache.shape();
  const SeqRows& seq = step_->seqs[static_cast<size_t>(task.seq)];
  const Tail& tail = tails_[static_cast<size_t>(task.seq)];
  const int32_t position = position_[static_cast<size_t>(task.row)], last = position + task.rows - 1;
  const std::vector<Val>& in = op(n).inputs;
  const Side k{.ops = *machine_.ops,
               .type = static_cast<PageType>(shape.k),
               .values = a.head_dim_k * kPageTokens,
               .bytes = kv.k_head_bytes,
               .pages = kv.k(head),
               .page_bytes = kv.page_bytes,
               .exact = exact_keys(kv, seq, head)};
  const Side v{.ops = *machine_.ops,
               .type = static_cast<PageType>(shape.v),
               .values = a.head_dim_v * kPageTokens,
               .bytes = kv.v_head_bytes,
               .pages = kv.v(head),
               .page_bytes = kv.page_bytes,
               .exact = exact_values(kv, seq, head)};
  const TaskPages pages{.tail = tail,
                        .table = step_->pages.data() + seq.first_page,
                        .own = position / kPageTokens,
                        .fills_own = last % kPageTokens == kPageTokens - 1 && task.page_end > last / kPageTokens};
  float* memory = scratch(thread);
  float* k_memory = memory + attend_scratch(int64_t{kTileRows} * group, a.head_dim_k, a.head_dim_v);
  float* v_memory = k_memory + fresh_scratch(limits_.rows, a.head_dim_k);
  AttendTile t{.q = f32(in[0].id, task.row) + head * group * a.head_dim_k,
               .q_stride = a.heads * a.head_dim_k,
               .rows = task.rows,
               .group = group,
               .position = position,
               .dim_k = a.head_dim_k,
               .dim_v = a.head_dim_v,
               .scale = a.scale,
               .k = source(k, pages, k_memory),
               .v = source(v, pages, v_memory),
               .page_bytes = kv.page_bytes,
               .pages = pages.table,
               .page_begin = task.page_begin,
               .page_end = task.page_end,
               .next = first_keys(n, item + 1),
               .in_bytes = task.in_bytes,
               .own_page = pages.own,
               .fresh_begin = tail.first_page,
               .out = f32(n.out, task.row) + head * group * a.head_dim_v,
               .out_stride = a.heads * a.head_dim_v,
               .partial = task.part >= 0,
               .scratch = memory};
  if (t.partial) t.out = f32(n.extra, 0) + (int64_t{task.part} * a.heads + head * group) * (a.head_dim_v + 2);
  machine_.ops->attend(t);
}

void CpuProgram::merge_parts(const Node& n, int64_t row, int thread) {
  const int32_t parts = n_parts_[static_cast<size_t>(row)];
  if (parts == 0) return;
  const auto& a = args<AttendArgs>(n);
  const int64_t width = a.head_dim_v + 2;
  const float* first = f32(n.extra, 0) + first_part_[static_cast<size_t>(row)] * a.heads * width;
  for (int64_t head = 0; head < a.heads; ++head) {
    const auto part = [&](int64_t i) { return first + (i * a.heads + head) * width; };  // sums, top, total
    float top = part(0)[a.head_dim_v];
    for (int64_t i = 1; i < parts; ++i) top = std::max(top, part(i)[a.head_dim_v]);
    float* out = f32(n.out, row, thread) + head * a.head_dim_v;
    float total = 0;
    for (int64_t i = 0; i < parts; ++i) total += std::exp2(part(i)[a.head_dim_v] - top) * part(i)[a.head_dim_v + 1];
    for (int64_t i = 0; i < parts; ++i) {
      const float share = std::exp2(part(i)[a.head_dim_v] - top) / total;
      (i == 0 ? machine_.ops->scale : machine_.ops->add_scaled)(share, part(i), a.head_dim_v, out);
    }
  }
}

}  // namespace tern::cpu
