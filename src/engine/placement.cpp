#include "engine/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "backend/split/split_backend.h"
#include "base/error.h"
#include "plan/segment.h"

namespace tern {
namespace {

// Of a prompt that CPU and GPU read: the CPU is what takes time, and rows take memory that layers could have.
constexpr int32_t kSplitRows = 512;
constexpr int64_t kLeastContext = 4096;  // for which layers leave the GPU when no context was asked for

/// Ops from which on the GPU may run, most first. The number of ops: it runs none.
std::vector<size_t> gpu_starts(const Plan& plan, const PlacementOptions& options) {
  if (options.backend != BackendKind::kCuda) return {0};  // where everything runs on the backend
  std::vector<size_t> starts = block_starts(plan);
  const auto all = static_cast<int32_t>(starts.size());
  starts.insert(starts.begin(), 0);  // embedding too
  starts.push_back(plan.ops.size());
  if (options.gpu_layers == kAutoLayers) return starts;
  if (options.gpu_layers >= all) return {starts[0], starts[1]};
  return {starts[static_cast<size_t>(all + 1 - options.gpu_layers)]};
}

/// What -ngl calls the placement whose GPU begins at an op.
int32_t layers_from(const Plan& plan, size_t op) {
  const std::vector<size_t> starts = block_starts(plan);
  return static_cast<int32_t>(std::ranges::count_if(starts, [&](size_t start) { return start >= op; }));
}

bool fits(const Share& share) {
  return share.need.total() <= share.available;
}

Placement cut(const Plan& plan, const PlacementOptions& options, const MemoryBudget& budget, size_t at) {
  Placement p{.shares = {}, .limits = options.limits};
  const auto add = [&](BackendKind backend, size_t begin, size_t end) {
    if (begin < end) p.shares.push_back({backend, begin, segment(plan, begin, end), {}, budget.of(backend)});
  };
  add(BackendKind::kCpu, 0, at);
  add(options.backend, at, plan.ops.size());
  if (p.limits.rows <= 0) p.limits.rows = p.shares.size() > 1 ? kSplitRows : default_rows(p.shares[0].backend);
  if (p.limits.context <= 0) {
    p.limits.context = std::numeric_limits<int32_t>::max();
    for (const Share& s : p.shares)
      p.limits.context = std::min(p.limits.context, fitting_context(s.plan, p.limits, s.available, s.backend));
    p.limits.context = std::max(p.limits.context, kPageTokens);  // if it does not fit: refused with the numbers
  }
  for (Share& s : p.shares) s.need = memory_need(s.plan, p.limits, s.backend);
  return p;
}

std::optional<Placement> first_fitting(const Plan& plan, const PlacementOptions& options, const MemoryBudget& budget) {
  const std::vector<size_t> starts = gpu_starts(plan, options);
  const bool any = options.limits.context <= 0 && options.gpu_layers == kAutoLayers;
  const int64_t least = plan.n_context_train > 0 ? std::min(plan.n_context_train, kLeastContext) : kLeastContext;
  for (const size_t at : starts) {
    Placement p = cut(plan, options, budget, at);
    const bool long_enough = !any || at == starts.back() || p.limits.context >= least;
    if (long_enough && std::ranges::all_of(p.shares, fits)) return p;
  }
  return std::nullopt;
}

/// Says what does not fit of the placement that asks least of the GPU.
[[noreturn]] void refuse(const Plan& plan, const PlacementOptions& options, const MemoryBudget& budget) {
  const Placement p = cut(plan, options, budget, gpu_starts(plan, options).back());
  const Share& s = *std::ranges::find_if_not(p.shares, fits);
  if (s.backend != BackendKind::kCuda) require_fits(s.plan, p.limits, s.available, s.backend);
  PlacementOptions fewer = options;
  fewer.gpu_layers = kAutoLayers;
  const auto other = first_fitting(plan, fewer, budget);
  const bool some = other && other->shares.back().backend == BackendKind::kCuda;
  fail(ErrorCode::kOutOfMemory, "{} on the GPU: {} are needed ({}, context {}), and {} are available there; {}",
       s.layers(), human_bytes(s.need.total()), need_text(s.need), p.limits.context, human_bytes(s.available),
       some ? fmt::format("-ngl {} would fit", layers_from(plan, other->shares.back().first_op))
            : "-ngl 0 runs everything on the CPU");
}

}  // namespace

std::string Share::layers() const {
  const bool embedding = std::holds_alternative<EmbedArgs>(plan.ops.front().args),
             head = static_cast<bool>(plan.hidden);
  if (embedding && head) return "everything";
  int32_t first = std::numeric_limits<int32_t>::max(), last = -1;
  for (const Op& op : plan.ops) {
    if (op.site.layer < 0) continue;
    first = std::min(first, op.site.layer);
    last = std::max(last, op.site.layer);
  }
  std::string text = embedding ? "embedding" : "";
  const auto append = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (last >= 0) append(first == last ? fmt::format("layer {}", first) : fmt::format("layers {}-{}", first, last));
  if (head) append("head");
  return text;
}

MemoryNeed Placement::need() const {
  MemoryNeed all;
  for (const Share& s : shares) all += s.need;
  return all;
}

Placement place(const Plan& plan, const PlacementOptions& options, const MemoryBudget& budget) {
  if (auto placement = first_fitting(plan, options, budget)) return *std::move(placement);
  refuse(plan, options, budget);
}

std::unique_ptr<Backend> make_backend(const Placement& placement, std::unique_ptr<Backend> device, BackendKind kind,
                                      int threads) {
  std::vector<SplitPart> parts;
  for (const Share& s : placement.shares)
    parts.push_back({s.backend == kind ? std::move(device) : make_backend(s.backend, threads), s.first_op});
  return parts.size() == 1 ? std::move(parts.front().backend) : make_split_backend(std::move(parts));
}

}  // namespace tern
