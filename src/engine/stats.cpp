#include "engine/stats.h"

#include <fmt/format.h>

namespace tern {

double bytes_per_token(const Runner& runner, double position) {
  double bytes = 0;
  for (const OpReport& op : runner.backend().report()) bytes += static_cast<double>(op.bytes);
  double kv = 0;
  for (const KvLayer& layer : runner.plan().kv_layers)
    kv += static_cast<double>(kv_bytes(runner.limits().k, layer.kv_heads * layer.head_dim_k) +
                              kv_bytes(runner.limits().v, layer.kv_heads * layer.head_dim_v));
  double state = 0;
  for (const StateLayer& layer : runner.plan().state_layers)
    state += static_cast<double>(layer.conv_floats() + layer.delta_floats()) * sizeof(float);
  return bytes + kv * position + 2 * state;
}

std::string stats_line(const Stats& stats, double bandwidth) {
  std::string line =
      fmt::format("first token {:.3f} s | prompt {} tokens", stats.first_token_seconds, stats.prompt_tokens);
  if (stats.cached_tokens > 0) line += fmt::format(" (+{} cached)", stats.cached_tokens);
  line += fmt::format(", {:.1f} tokens/s", stats.prefill_rate());
  if (stats.decoded_tokens == 0) return line;
  line += fmt::format(" | decode {} tokens, {:.1f} tokens/s | {:.1f} MB a token, {:.1f} GB/s", stats.decoded_tokens,
                      stats.decode_rate(), stats.bytes_per_token / 1e6, stats.decode_bandwidth() / 1e9);
  if (bandwidth > 0)
    line +=
        fmt::format(", {:.0f}% of this machine's {:.1f}", 100 * stats.decode_bandwidth() / bandwidth, bandwidth / 1e9);
  return line;
}

}  // namespace tern
