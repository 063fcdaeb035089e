#include "engine/memory_need.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "cache/kv_pool.h"

namespace tern {
namespace {

constexpr int32_t kUnknownContext = 4096;  // of a file that does not say what it was trained for

}  // namespace

MemoryNeed& MemoryNeed::operator+=(const MemoryNeed& other) noexcept {
  weights += other.weights;
  kv += other.kv;
  states += other.states;
  activations += other.activations;
  return *this;
}

std::string need_text(const MemoryNeed& need) {
  return fmt::format("{} of weights, {} of KV cache, {} of recurrent state and {} of activations",
                     human_bytes(need.weights), human_bytes(need.kv), human_bytes(need.states),
                     human_bytes(need.activations));
}

MemoryNeed memory_need(const Plan& plan, const Runner::Limits& limits, BackendKind backend) {
  MemoryNeed need;
  for (const PlanWeight& w : plan.weights) need.weights += weight_bytes(backend, w);
  CacheShape shape = limits.cache(plan);
  const int32_t slots = std::exchange(shape.state_slots, 0);
  need.kv = static_cast<uint64_t>(cache_bytes(plan, shape));
  shape.state_slots = slots;
  need.states = static_cast<uint64_t>(cache_bytes(plan, shape)) - need.kv;
  const auto rows = static_cast<uint64_t>(std::min<int64_t>(limits.rows, int64_t{limits.context} * limits.sequences));
  uint64_t row_bytes = 0;
  for (const ValInfo& v : plan.vals) row_bytes += v.outputs_only ? 0 : static_cast<uint64_t>(v.cols) * sizeof(float);
  // Backends reuse the memory of dead activations: of the sum over all layers about one layer's part is alive. On a GPU
  // the programs of answers and of embeddings have each their own, on a CPU they share it.
  const uint64_t owners = backend == BackendKind::kCuda ? 2 : 1;
  need.activations = owners * rows * row_bytes / static_cast<uint64_t>(std::max<int64_t>(1, plan.n_layers));
  need.activations += static_cast<uint64_t>(int64_t{limits.sequences} * plan.n_vocab) * sizeof(float);
  need.activations += rows * static_cast<uint64_t>(plan.n_embd) * sizeof(float);  // hidden states, to take the mean of
  return need;
}

int32_t fitting_context(const Plan& plan, Runner::Limits limits, uint64_t bytes, BackendKind backend) {
  const auto fits = [&](int32_t pages) {
    limits.context = pages * kPageTokens;
    return memory_need(plan, limits, backend).total() <= bytes;
  };
  const int64_t trained = plan.n_context_train > 0 ? plan.n_context_train : kUnknownContext;
  int32_t low = 0, high = KvPool::pages_for(trained);  // invariant: low fits
  while (low < high) {
    const int32_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return static_cast<int32_t>(std::min<int64_t>(int64_t{low} * kPageTokens, trained));
}

void require_fits(const Plan& plan, const Runner::Limits& limits, uint64_t available, BackendKind backend) {
  const MemoryNeed need = memory_need(plan, limits, backend);
  if (need.total() <= available) return;
  std::string advice;
  if (const int32_t context = fitting_context(plan, limits, available, backend); context > 0) {
    advice = fmt::format("-c {} would fit", context);
    Runner::Limits smaller = limits;
    smaller.k = smaller.v = KvType::kQ8_0;
    if (memory_need(plan, smaller, backend).total() <= available) advice += "; so would -ctk q8_0 -ctv q8_0";
  } else {
    advice = fmt::format("no context fits beside the weights: free {}, or use a smaller model",
                         human_bytes(need.total() - available));
  }
  fail(ErrorCode::kOutOfMemory, "the model needs {} ({}, context {}), and {} are available; {}",
       human_bytes(need.total()), need_text(need), limits.context, human_bytes(available), advice);
}

std::string human_bytes(uint64_t bytes) {
  static constexpr std::array kUnits{"B", "KB", "MB", "GB", "TB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, kUnits[unit]);
}

}  // namespace tern
