#include "cli/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>

#include "base/error.h"
#include "cli/terminal.h"

namespace tern::cli {
namespace {

constexpr int32_t kMostContext = 1 << 30;  // page and row arithmetic in 32 bits has room above it
constexpr const char* kModelVariable = "LLAMA_ARG_MODEL";
constexpr std::string_view kDefaultModel = "models/ternlet-hybrid-108m-PTQ1_0.gguf";

/// llama.cpp's spellings of one dash and several letters, and the long flag of the same meaning.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kSingleDash{{
    {"-np", "--parallel"},
    {"-ngl", "--n-gpu-layers"},
    {"-dev", "--device"},
    {"-sys", "--system-prompt"},
    {"-ctk", "--cache-type-k"},
    {"-ctv", "--cache-type-v"},
    {"-cnv", "--conversation"},
    {"-no-cnv", "--no-cnv"},
    {"-sysf", "--system-prompt-file"},
    {"-ctx", "--ctx-size"},
}};

/// Flags of llama.cpp's command line that a user may bring along and that tern does not have: an error that says so.
constexpr std::array kLlamaFlags{"--gpu-layers-draft",
                                 "--split-mode",
                                 "--tensor-split",
                                 "--main-gpu",
                                 "--flash-attn",
                                 "--mmproj",
                                 "--grammar",
                                 "--grammar-file",
                                 "--json-schema",
                                 "--json-schema-file",
                                 "--chat-template",
                                 "--chat-template-file",
                                 "--jinja",
                                 "--no-jinja",
                                 "--lora",
                                 "--lora-scaled",
                                 "--control-vector",
                                 "--model-draft",
                                 "--draft-max",
                                 "--draft-min",
                                 "--hf-repo",
                                 "--hf-file",
                                 "--hf-token",
                                 "--model-url",
                                 "--mlock",
                                 "--no-mmap",
                                 "--numa",
                                 "--cpu-moe",
                                 "--n-cpu-moe",
                                 "--override-tensor",
                                 "--override-kv",
                                 "--fit",
                                 "--list-devices",
                                 "--threads-batch",
                                 "--ubatch-size",
                                 "--keep",
                                 "--no-context-shift",
                                 "--context-shift",
                                 "--rope-scaling",
                                 "--rope-scale",
                                 "--rope-freq-base",
                                 "--rope-freq-scale",
                                 "--yarn-orig-ctx",
                                 "--yarn-ext-factor",
                                 "--yarn-attn-factor",
                                 "--yarn-beta-slow",
                                 "--yarn-beta-fast",
                                 "--samplers",
                                 "--sampling-seq",
                                 "--ignore-eos",
                                 "--logit-bias",
                                 "--typical",
                                 "--xtc-probability",
                                 "--xtc-threshold",
                                 "--dry-multiplier",
                                 "--dry-base",
                                 "--dry-allowed-length",
                                 "--dry-penalty-last-n",
                                 "--dry-sequence-breaker",
                                 "--dynatemp-range",
                                 "--dynatemp-exp",
                                 "--mirostat",
                                 "--mirostat-lr",
                                 "--mirostat-ent",
                                 "--top-n-sigma",
                                 "--prompt-cache",
                                 "--reverse-prompt",
                                 "--interactive",
                                 "--interactive-first",
                                 "--in-prefix",
                                 "--in-suffix",
                                 "--no-display-prompt",
                                 "--simple-io",
                                 "--multiline-input",
                                 "--escape",
                                 "--no-escape",
                                 "--special",
                                 "--warmup",
                                 "--no-warmup",
                                 "--swa-full",
                                 "--kv-unified",
                                 "--no-kv-offload",
                                 "--no-repack",
                                 "--cpu-mask",
                                 "--cpu-range",
                                 "--cpu-strict",
                                 "--prio",
                                 "--poll",
                                 "--check-tensors",
                                 "--log-disable",
                                 "--log-file",
                                 "--log-colors",
                                 "--log-verbosity",
                                 "--reasoning-format",
                                 "--reasoning-budget",
                                 "--single-turn",
                                 "--parallel",
                                 "--image",
                                 "--audio",
                                 "-fa",
                                 "-sm",
                                 "-ts",
                                 "-mg",
                                 "-dev",
                                 "-md",
                                 "-hf",
                                 "-hff",
                                 "-tb",
                                 "-ub",
                                 "-np",
                                 "-cmoe",
                                 "-ncmoe",
                                 "-ot",
                                 "-st",
                                 "-r",
                                 "-i",
                                 "-e",
                                 "-j",
                                 "-lv",
                                 "-nkvo",
                                 "-kvu",
                                 "-np",
                                 "-C",
                                 "-Cr",
                                 "-l"};

/// The folder of the running binary.
std::filesystem::path binary_folder() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::filesystem::current_path() : path.parent_path();
}

std::vector<std::string> kv_type_names() {
  std::vector<std::string> names;
  names.reserve(kKvTypes.size());
  for (const KvType type : kKvTypes) names.emplace_back(kv_type_name(type));
  return names;
}

KvType kv_type(const std::string& name) {
  return *std::find_if(kKvTypes.begin(), kKvTypes.end(), [&](KvType type) { return kv_type_name(type) == name; });
}

/// What --backend takes.
std::vector<std::string> backend_choices() {
  std::vector<std::string> names{"auto"};
  for (const BackendKind kind : kBackendKinds) names.emplace_back(backend_name(kind));
  return names;
}

int32_t gpu_layer_count(const std::string& text) {
  if (text == "auto") return kAutoLayers;
  if (text == "all") return kAllLayers;
  int32_t layers = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layers);
  if (error != std::errc{} || end != text.data() + text.size() || layers < 0)
    throw UsageError(fmt::format("--n-gpu-layers: '{}' is neither a number of layers nor auto nor all", text));
  return layers;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

/// Every spelling a user may have meant.
std::vector<std::string> known_flags(const FlagSet& flags) {
  std::vector<std::string> names = flags.spellings();
  for (const auto& [short_name, long_name] : kSingleDash)
    if (std::find(names.begin(), names.end(), long_name) != names.end()) names.emplace_back(short_name);
  return names;
}

}  // namespace

void FileFlags::declare(FlagSet& set, bool positional) {
  set.option(positional ? "-m,--model,MODEL" : "-m,--model", path,
             "the model, a .gguf file (env LLAMA_ARG_MODEL; default: the one that ships with tern)");
}

std::string FileFlags::named() const {
  if (!path.empty()) return path;
  const char* variable = std::getenv(kModelVariable);
  return variable == nullptr ? "" : variable;
}

std::string FileFlags::resolve() const {
  if (std::string given = named(); !given.empty()) return given;
  // Beside the binary, or in the tree it was built in: build/release/tern -> models/.
  for (auto folder = binary_folder(); !folder.empty(); folder = folder.parent_path()) {
    if (const auto candidate = folder / kDefaultModel; std::filesystem::exists(candidate)) return candidate.string();
    if (folder == folder.root_path()) break;
  }
  fail(ErrorCode::kNotFound,
       "no model named, and {} is neither beside the binary nor in a folder above it: use -m FILE", kDefaultModel);
}

void ModelFlags::declare(FlagSet& set, bool positional_model) {
  file.declare(set, positional_model);
  set.group("Model");
  set.option("-c,--ctx-size", context, "tokens of context (0: the largest that fits, at most the trained length)")
      .between(0, kMostContext)
      .environment("LLAMA_ARG_CTX_SIZE");
  set.option("-t,--threads", threads, "threads (0: the physical cores this process may use)")
      .between(0, 1024)
      .environment("LLAMA_ARG_THREADS");
  declare_engine(set);
  set.group("Options");
}

void ModelFlags::declare_engine(FlagSet& set) {
  set.option("-b,--batch-size", batch, "tokens of a prompt read in one batch (0: what suits the backend)")
      .between(1, 65536)
      .environment("LLAMA_ARG_BATCH");
  set.option("--cache-type-k", type_k, "-ctk: type of cached keys (q4_0, kivi and kivi4 lose some quality)")
      .one_of(kv_type_names())
      .environment("LLAMA_ARG_CACHE_TYPE_K");
  set.option("--cache-type-v", type_v, "-ctv: type of cached values")
      .one_of(kv_type_names())
      .environment("LLAMA_ARG_CACHE_TYPE_V");
  set.option("--n-gpu-layers,--gpu-layers", gpu_layers,
             "-ngl: the last N layers run on the GPU, the head counting as one; all; auto: as many as fit")
      .environment("LLAMA_ARG_N_GPU_LAYERS");
  set.option("--backend,--device", backend,
             "-dev: cpu; cuda: a GPU; ref: slow and exact; auto: a GPU where there is one, else the CPU")
      .one_of(backend_choices())
      .environment("LLAMA_ARG_DEVICE");
  set.option("--activations", activations, "native: rounded as the weights' format asks; f32: not rounded")
      .one_of({"native", "f32"});
  set.flag("-q,--quiet", quiet, "print nothing but the answer and errors");
}

BackendKind ModelFlags::kind() const {
  for (const BackendKind each : kBackendKinds)
    if (backend == backend_name(each)) return each;
  return gpu_layer_count(gpu_layers) != 0 && has_gpu() ? BackendKind::kCuda : BackendKind::kCpu;
}

ModelOptions ModelFlags::options(const Need& need) const {
  const int32_t layers = gpu_layer_count(gpu_layers);
  const BackendKind on = kind();
  if (layers > 0 && on != BackendKind::kCuda && !quiet)
    fmt::print(stderr, "tern: no GPU is used, -ngl {} has no effect ({})\n", gpu_layers,
               backend == "auto" ? "-dev cuda says what is missing" : "-dev " + backend);
  ModelOptions options{.path = "",
                       .backend = on,
                       .gpu_layers = layers,
                       .threads = threads,
                       .activations = activations == "f32" ? ActivationMode::kF32 : ActivationMode::kNative};
  options.limits = {.context = need.context > 0 ? need.context : context,
                    .sequences = need.sequences,
                    .rows = need.rows > 0 ? need.rows : batch,
                    .k = kv_type(type_k),
                    .v = kv_type(type_v)};
  return options;
}

std::unique_ptr<Model> ModelFlags::load(const Need& need) const {
  ProgressLine line("loading", ProgressLine::Unit::kBytes, quiet);
  ModelOptions loaded = options(need);
  loaded.path = file.resolve();
  loaded.progress = [&](uint64_t done, uint64_t total) { line.update(done, total); };
  return std::make_unique<Model>(loaded);
}

void SamplingFlags::declare(FlagSet& set) {
  set.group("Sampling");
  set.option("-n,--predict,--n-predict", max_tokens, "tokens to generate (-1: until the model ends)")
      .at_least(-1)
      .environment("LLAMA_ARG_N_PREDICT");
  set.option("-s,--seed", seed, "seed of the draw (-1: another one every time)").at_least(-1);
  declare_settings(set);
  set.group("Options");
}

void SamplingFlags::declare_settings(FlagSet& set) {
  for (const SamplerSetting& setting : sampler_settings()) {
    std::visit([&](auto member) { set.option(std::string(setting.flags), options.*member, std::string(setting.help)); },
               setting.member);
    set.between(setting.low, setting.high);
  }
}

void SamplingFlags::take_file(const FileSampling& file, const FlagSet& set) {
  for (const auto& [setting, value] : file.values) {
    const std::string flag = fmt::format("--{}", setting->name());
    if (set.given(flag)) continue;
    try {
      setting->set(options, value);
    } catch (const Error& error) {
      fail(ErrorCode::kBadFile, "general.sampling.{} of the file: {}; give {}", setting->key, error.what(), flag);
    }
  }
}

SamplerOptions SamplingFlags::resolve() const {
  SamplerOptions out = options;
  out.seed = seed >= 0 ? static_cast<uint64_t>(seed) : std::random_device{}();
  return out;
}

std::string sampling_text(const SamplerOptions& options) {
  std::string text;
  for (const SamplerSetting& setting : sampler_settings())
    text += fmt::format("{}{} {:.4g}", text.empty() ? "" : " ", setting.name(), setting.value(options));
  return text;
}

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    const bool likelier = distance == best_distance && best && candidate.size() == word.size();  // letters swapped
    if (distance < best_distance || likelier) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best ? std::optional(*best) : std::nullopt;
}

namespace {

[[noreturn]] void unknown_flag(const FlagSet& flags, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  if (std::find(kLlamaFlags.begin(), kLlamaFlags.end(), name) != kLlamaFlags.end())
    throw UsageError(fmt::format("{} is a flag of llama.cpp that `{}` does not support", name, flags.name()));
  const auto near = nearest(name, known_flags(flags));
  throw UsageError(fmt::format("unknown flag {}{} (see `{} --help`)", name,
                               near ? fmt::format("; did you mean {}?", *near) : "", flags.name()));
}

/// "-ngl", "-pv": the parser would read several letters behind one dash as several flags, or as a flag and its value.
bool is_bundle(const std::string& argument) {
  const auto letter = [&](size_t i) { return std::isalpha(static_cast<unsigned char>(argument[i])) != 0; };
  return argument.size() > 2 && argument[0] == '-' && letter(1) && letter(2);
}

}  // namespace

std::vector<std::string> canonical_arguments(const FlagSet& flags, std::span<const std::string_view> arguments) {
  std::vector<std::string> out;
  bool is_value = false;  // what stands behind an option that takes one is its value, whatever it looks like
  for (const std::string_view argument : arguments) {
    const auto* const row =
        std::find_if(kSingleDash.begin(), kSingleDash.end(), [&](const auto& pair) { return pair.first == argument; });
    out.emplace_back(is_value || row == kSingleDash.end() ? argument : row->second);
    if (!is_value && is_bundle(out.back())) unknown_flag(flags, out.back());
    is_value = !is_value && flags.takes_value(out.back());
  }
  return out;
}

void refuse_leftovers(const FlagSet& flags) {
  const std::vector<std::string> leftovers = flags.leftovers();
  if (leftovers.empty()) return;
  const auto flag = std::find_if(leftovers.begin(), leftovers.end(),
                                 [](const std::string& s) { return s.size() > 1 && s[0] == '-'; });
  if (flag != leftovers.end()) unknown_flag(flags, *flag);
  throw UsageError(fmt::format("unexpected argument '{}' (see `{} --help`)", leftovers.front(), flags.name()));
}

}  // namespace tern::cli
