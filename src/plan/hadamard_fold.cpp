#include "plan/hadamard_fold.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>

#include "base/error.h"

namespace tern {
namespace {

constexpr std::string_view kPrefix = "prism.hadamard.";
constexpr std::string_view kEmbedding = "token_embd.weight";

constexpr std::array<std::string_view, 11> kKeys = {
    "version",     "block_size",  "transform",     "axis",       "sign_mode", "weight_names", "inverse_weight_names",
    "sign_widths", "sign_values", "gdn_v_grouped", "tied_output"};

constexpr std::array<std::string_view, 17> kKinds = {
    "attn_q",           "attn_k",         "attn_v",       "attn_qkv",       "attn_gate",   "attn_output",
    "ffn_gate",         "ffn_up",         "ffn_down",     "ffn_gate_exps",  "ffn_up_exps", "ffn_down_exps",
    "ffn_gate_up_exps", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp", "ssm_out"};

constexpr std::array<std::string_view, 6> kArchitectures = {"llama",  "qwen3",     "qwen3moe",
                                                            "qwen35", "qwen35moe", "qwen3next"};

std::string key(std::string_view suffix) {
  return std::string(kPrefix) + std::string(suffix);
}

/// "output.weight" or "blk.<digits>.<kind>.weight".
bool foldable_name(std::string_view name) {
  if (name == "output.weight") return true;
  if (!name.starts_with("blk.") || !name.ends_with(".weight")) return false;
  name.remove_prefix(4);
  name.remove_suffix(7);
  const size_t dot = name.find('.');
  if (dot == 0 || dot == std::string_view::npos) return false;
  const std::string_view digits = name.substr(0, dot), kind = name.substr(dot + 1);
  return std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c); }) &&
         std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

void require_text(const gguf::Metadata& m, std::string_view suffix, std::string_view wanted) {
  const std::string_view got = m.require_string(key(suffix));
  if (got != wanted) {
    fail(ErrorCode::kUnsupported, "{} is '{}'; only '{}' is implemented", key(suffix), got, wanted);
  }
}

std::map<int64_t, std::vector<float>> read_signs(const gguf::Metadata& m, int64_t block) {
  const auto widths = m.get_ints(key("sign_widths"));
  const auto values = m.get_ints(key("sign_values"));
  if (!widths || widths->empty()) {
    fail(ErrorCode::kBadFile, "{} is 'explicit' but {} is absent or empty", key("sign_mode"), key("sign_widths"));
  }
  const size_t n_values = values ? values->size() : 0;
  std::map<int64_t, std::vector<float>> signs;
  size_t at = 0;
  for (const int64_t width : *widths) {
    if (width <= 0 || width % block != 0) {
      fail(ErrorCode::kBadFile, "{} has {}; a width must be a positive multiple of block_size {}", key("sign_widths"),
           width, block);
    }
    if (static_cast<uint64_t>(width) > n_values - at) {
      fail(ErrorCode::kBadFile, "{} has {} values, too few for width {} at value {}", key("sign_values"), n_values,
           width, at);
    }
    std::vector<float> s;
    s.reserve(static_cast<size_t>(width));
    for (int64_t i = 0; i < width; ++i) {
      const int64_t v = (*values)[at++];
      if (v != 1 && v != -1)
        fail(ErrorCode::kBadFile, "{}[{}] is {}; a sign is +1 or -1", key("sign_values"), at - 1, v);
      s.push_back(static_cast<float>(v));
    }
    if (!signs.emplace(width, std::move(s)).second) {
      fail(ErrorCode::kBadFile, "{} lists width {} twice", key("sign_widths"), width);
    }
  }
  if (at != n_values) {
    fail(ErrorCode::kBadFile, "{} has {} values, but the widths account for {}", key("sign_values"), n_values, at);
  }
  return signs;
}

std::set<std::string, std::less<>> read_names(const gguf::Metadata& m, std::string_view suffix) {
  std::set<std::string, std::less<>> names;
  const std::vector<std::string>* list = m.get_strings(key(suffix));
  if (!list) return names;
  for (const std::string& n : *list) {
    if (!names.insert(n).second) fail(ErrorCode::kBadFile, "{} lists '{}' twice", key(suffix), n);
  }
  return names;
}

/// The delta-net geometry that the grouped order of ssm_out refers to.
void check_head_geometry(const gguf::Metadata& m, const std::string& arch, const gguf::TensorInfo& t) {
  const int64_t n_v = m.require_int(arch + ".ssm.time_step_rank"), n_k = m.require_int(arch + ".ssm.group_count");
  if (n_k <= 0 || n_v <= 0 || n_v % n_k != 0 || t.ne[0] % n_v != 0) {
    fail(ErrorCode::kBadFile, "{}: {} key heads and {} value heads do not divide its {} columns", t.name, n_k, n_v,
         t.ne[0]);
  }
}

}  // namespace

std::optional<HadamardFold> HadamardFold::from_file(const gguf::File& file) {
  const gguf::Metadata& m = file.metadata();
  bool any = false;
  for (const auto& [k, v] : m.items()) {
    if (!k.starts_with(kPrefix)) continue;
    any = true;
    const std::string_view suffix = std::string_view(k).substr(kPrefix.size());
    if (std::find(kKeys.begin(), kKeys.end(), suffix) == kKeys.end()) {
      fail(ErrorCode::kUnsupported, "unknown key {}: this build does not know what it changes", k);
    }
  }
  if (!any) return std::nullopt;
  if (!m.has(key("version"))) {
    fail(ErrorCode::kBadFile,
         "the file has {}* keys but no {}: without it the weights would be read in the wrong basis", kPrefix,
         key("version"));
  }
  const std::string arch(m.require_string("general.architecture"));
  if (std::find(kArchitectures.begin(), kArchitectures.end(), arch) == kArchitectures.end()) {
    fail(ErrorCode::kUnsupported, "a Hadamard fold is not defined for architecture '{}'", arch);
  }

  HadamardFold f;
  const int64_t version = m.require_int(key("version"));
  if (version != 1 && version != 2)
    fail(ErrorCode::kUnsupported, "{} is {}; 1 and 2 are implemented", key("version"), version);
  f.block_size_ = m.require_int(key("block_size"));
  if (f.block_size_ <= 0 || !std::has_single_bit(static_cast<uint64_t>(f.block_size_))) {
    fail(ErrorCode::kBadFile, "{} is {}; it must be a power of two", key("block_size"), f.block_size_);
  }
  require_text(m, "transform", "normalized-sylvester-walsh-hadamard");
  require_text(m, "axis", "input-last-dimension");
  const std::string_view mode = m.require_string(key("sign_mode"));
  if (mode == "explicit") {
    f.signs_ = read_signs(m, f.block_size_);
  } else if (mode != "identity") {
    fail(ErrorCode::kUnsupported, "{} is '{}'; 'identity' and 'explicit' are implemented", key("sign_mode"), mode);
  }
  f.gdn_v_grouped_ = m.get_bool(key("gdn_v_grouped")).value_or(false);
  f.tied_output_ = m.get_bool(key("tied_output")).value_or(false);
  f.folded_ = read_names(m, "weight_names");
  f.inverse_ = read_names(m, "inverse_weight_names");

  if ((version == 2) != f.tied_output_) {
    fail(ErrorCode::kBadFile, "{} {} with {} {}: version 2 and a tied output go together", key("version"), version,
         key("tied_output"), f.tied_output_);
  }
  const bool has_head = file.find("output.weight") != nullptr;
  if (f.tied_output_ && has_head)
    fail(ErrorCode::kBadFile, "{} is true, but the file has output.weight", key("tied_output"));
  if (f.tied_output_ && !f.inverse_.count(kEmbedding)) {
    fail(ErrorCode::kBadFile, "{} is true, but {} does not list {}", key("tied_output"), key("inverse_weight_names"),
         kEmbedding);
  }
  if (f.folded_.empty()) fail(ErrorCode::kBadFile, "{} is absent or empty", key("weight_names"));

  for (const std::string& name : f.inverse_) {
    if (name != kEmbedding)
      fail(ErrorCode::kUnsupported, "{} lists '{}'; only {} is read by row", key("inverse_weight_names"), name,
           kEmbedding);
    if (f.folded_.count(name)) fail(ErrorCode::kBadFile, "'{}' is in both weight_names and inverse_weight_names", name);
    if (version == 1 && !has_head)
      fail(ErrorCode::kBadFile, "{} is rotated but the file has no output.weight (version 1 has no tied output)", name);
  }
  const auto check_tensor = [&](const std::string& name) {
    const gguf::TensorInfo* t = file.find(name);
    if (!t) fail(ErrorCode::kBadFile, "the Hadamard fold lists '{}', which is not in the file", name);
    if (t->ne[0] % f.block_size_ != 0) {
      fail(ErrorCode::kBadFile, "{}: {} columns are not a multiple of the Hadamard block {}", name, t->ne[0],
           f.block_size_);
    }
    if (mode == "explicit" && !f.signs_.count(t->ne[0])) {
      fail(ErrorCode::kBadFile, "{}: no sign vector for its width {} in {}", name, t->ne[0], key("sign_widths"));
    }
    if (f.gdn_v_grouped_ && name.ends_with(".ssm_out.weight")) check_head_geometry(m, arch, *t);
  };
  for (const std::string& name : f.folded_) {
    if (!foldable_name(name))
      fail(ErrorCode::kUnsupported, "{} lists '{}', a kind of weight that cannot be folded", key("weight_names"), name);
    check_tensor(name);
  }
  for (const std::string& name : f.inverse_) check_tensor(name);
  return f;
}

const std::vector<float>& HadamardFold::signs(int64_t width) const {
  static const std::vector<float> kNone;
  const auto it = signs_.find(width);
  return it == signs_.end() ? kNone : it->second;
}

}  // namespace tern
