#include "engine/sampler_settings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace tern {
namespace {

constexpr std::string_view kPrefix = "general.sampling.";
constexpr double kMost = std::numeric_limits<int32_t>::max();

constexpr std::array kSettings{
    SamplerSetting{"--temp,--temperature", "temp", "temperature; 0: always the most likely token",
                   &SamplerOptions::temperature, 0, 100},
    SamplerSetting{"--top-k", "top_k", "draw from the k most likely tokens (0 or -1: all)", &SamplerOptions::top_k, -1,
                   kMost},
    SamplerSetting{"--top-p", "top_p", "draw from the fewest tokens that together have probability p (1: all)",
                   &SamplerOptions::top_p, 0, 1},
    SamplerSetting{"--min-p", "min_p", "draw from tokens at least p times as likely as the best (0: all)",
                   &SamplerOptions::min_p, 0, 1},
    SamplerSetting{"--repeat-penalty", "penalty_repeat", "weaken tokens seen lately (1: off)",
                   &SamplerOptions::repeat_penalty, 0.01, 100},
    SamplerSetting{"--presence-penalty", "penalty_present", "taken off the logits of tokens seen lately (0: off)",
                   &SamplerOptions::presence_penalty, -2, 2},
    SamplerSetting{"--frequency-penalty", "penalty_freq", "the same, once for every time they were seen (0: off)",
                   &SamplerOptions::frequency_penalty, -2, 2},
    SamplerSetting{"--repeat-last-n", "penalty_last_n", "how many tokens back the penalties look (0: off, -1: all)",
                   &SamplerOptions::repeat_last_n, -1, kMost},
};

double number(const std::string& key, const gguf::Value& value) {
  if (const auto* f = std::get_if<double>(&value.data)) return *f;
  if (const auto* i = std::get_if<int64_t>(&value.data)) return static_cast<double>(*i);
  if (const auto* u = std::get_if<uint64_t>(&value.data)) return static_cast<double>(*u);
  fail(ErrorCode::kBadFile, "metadata key '{}' is {}, a number is expected", key, gguf::value_type_name(value.type));
}

}  // namespace

std::span<const SamplerSetting> sampler_settings() noexcept {
  return kSettings;
}

std::string_view SamplerSetting::name() const {
  return flags.substr(2, flags.find(',') - 2);
}

double SamplerSetting::value(const SamplerOptions& options) const {
  return std::visit([&](auto m) { return static_cast<double>(options.*m); }, member);
}

void SamplerSetting::set(SamplerOptions& options, double value) const {
  if (!(value >= low && value <= high))  // NaN too
    fail(ErrorCode::kInvalidArgument, "{} is {}, and must be within {}..{}", name(), value, low, high);
  if (whole() && value != std::trunc(value))
    fail(ErrorCode::kInvalidArgument, "{} is {}, and must be a whole number", name(), value);
  std::visit([&](auto m) { options.*m = static_cast<std::decay_t<decltype(options.*m)>>(value); }, member);
}

FileSampling file_sampling(const gguf::Metadata& metadata) {
  FileSampling found;
  for (const auto& [key, value] : metadata.items()) {
    if (!key.starts_with(kPrefix)) continue;
    const std::string_view name = std::string_view(key).substr(kPrefix.size());
    const auto* const setting =
        std::find_if(kSettings.begin(), kSettings.end(), [&](const SamplerSetting& s) { return s.key == name; });
    if (setting == kSettings.end()) {
      found.ignored.push_back(key);
    } else {
      found.values.emplace_back(setting, number(key, value));
    }
  }
  return found;
}

}  // namespace tern
