#include "cli/model_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace tern::cli {

std::vector<FormatShare> format_mix(const gguf::File& file) {
  std::map<std::string, FormatShare> by_name;
  for (const gguf::TensorInfo& t : file.tensors()) {
    const std::string name(type_info(t.type).name);
    FormatShare& share = by_name[name];
    share.name = name;
    ++share.tensors;
    share.parameters += static_cast<uint64_t>(t.elements());
    share.bytes += t.nbytes;
  }
  std::vector<FormatShare> mix;
  mix.reserve(by_name.size());
  for (auto& [name, share] : by_name) mix.push_back(share);
  std::sort(mix.begin(), mix.end(), [](const FormatShare& a, const FormatShare& b) { return a.bytes > b.bytes; });
  return mix;
}

double bits_per_weight(const gguf::File& file) {
  FormatShare all;
  for (const gguf::TensorInfo& t : file.tensors()) {
    all.parameters += static_cast<uint64_t>(t.elements());
    all.bytes += t.nbytes;
  }
  return all.bits_per_weight();
}

std::vector<ContextNeed> memory_at_contexts(const Plan& plan, const std::function<MemoryNeed(int32_t context)>& need) {
  std::set<int32_t> contexts{4096, 32768};
  if (plan.n_context_train > 0) {
    std::erase_if(contexts, [&](int32_t c) { return c > plan.n_context_train; });
    contexts.insert(static_cast<int32_t>(plan.n_context_train));
  }
  std::vector<ContextNeed> out;
  for (const int32_t context : contexts) out.push_back({context, need(context)});
  return out;
}

std::vector<std::string> placement_lines(const Placement& placement) {
  std::vector<std::string> lines;
  if (placement.shares.size() < 2) return lines;
  for (const Share& s : placement.shares)
    lines.push_back(fmt::format("{}: {}: {} ({})", backend_name(s.backend), s.layers(), human_bytes(s.need.total()),
                                need_text(s.need)));
  return lines;
}

std::string human_count(uint64_t n) {
  const auto x = static_cast<double>(n);
  if (x >= 1e9) return fmt::format("{:.{}f} B", x / 1e9, x < 1e10 ? 2 : 1);
  if (x >= 1e6) return fmt::format("{:.0f} M", x / 1e6);
  return fmt::format("{}", n);
}

}  // namespace tern::cli
