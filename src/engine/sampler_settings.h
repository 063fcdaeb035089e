// The settings of sampling by name: one table for flags, the chat's /set, the metadata of files and the checks.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/sampler.h"
#include "gguf/file.h"

namespace tern {

struct SamplerSetting {
  std::string_view flags;  // as llama.cpp spells them, "--temp,--temperature"
  std::string_view key;    // "temp": general.sampling.temp in files, llama.cpp's llama_model_meta_key
  std::string_view help;
  std::variant<float SamplerOptions::*, int32_t SamplerOptions::*> member;
  double low, high;  // allowed values, both included

  /// The first spelling without its dashes: "temp".
  std::string_view name() const;
  double value(const SamplerOptions& options) const;
  bool whole() const noexcept { return std::holds_alternative<int32_t SamplerOptions::*>(member); }
  /// kInvalidArgument when `value` is outside the range, which is told, or not whole where it has to be.
  void set(SamplerOptions& options, double value) const;
};
std::span<const SamplerSetting> sampler_settings() noexcept;

/// What a file's publisher recommends: its `general.sampling.*` keys.
struct FileSampling {
  std::vector<std::pair<const SamplerSetting*, double>> values;
  std::vector<std::string> ignored;  // keys of samplers that tern does not have
};
/// kBadFile naming the key when a value is no number.
FileSampling file_sampling(const gguf::Metadata& metadata);

}  // namespace tern
