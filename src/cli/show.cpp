// tern show: what a model file is, without loading it.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/model_summary.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "engine/model.h"
#include "engine/sampler_settings.h"
#include "models/registry.h"
#include "text/tokenizer.h"

namespace tern::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  FileFlags file;
  bool json = false, tensors = false, metadata = false;
};

/// The plan, or why there is none.
struct Planned {
  std::optional<Plan> plan;
  std::string refusal;
};
Planned try_plan(const gguf::File& file) {
  try {
    return {build_plan(file), ""};
  } catch (const Error& error) {
    return {std::nullopt, error.what()};
  }
}

std::string tokenizer_of(const gguf::File& file) {
  if (!file.metadata().has("tokenizer.ggml.model")) return "none";
  try {
    const auto tokenizer = text::Tokenizer::from_metadata(file.metadata());
    return fmt::format("{}, {} tokens", tokenizer.description(), grouped(tokenizer.n_vocab()));
  } catch (const Error& error) {
    return fmt::format("cannot be used: {}", error.what());
  }
}

Json summary(const gguf::File& file, const Planned& planned) {
  const gguf::Metadata& metadata = file.metadata();
  Json out{{"name", model_name(file)},
           {"path", file.path()},
           {"architecture", metadata.get_string("general.architecture").value_or("?")},
           {"parameters", parameter_count(file)},
           {"bytes", file.file_bytes()},
           {"bits_per_weight", bits_per_weight(file)},
           {"gguf_version", file.version()},
           {"formats", Json::array()}};
  for (const FormatShare& share : format_mix(file))
    out["formats"].push_back({{"name", share.name},
                              {"tensors", share.tensors},
                              {"parameters", share.parameters},
                              {"bytes", share.bytes},
                              {"bits_per_weight", share.bits_per_weight()}});
  out["tokenizer"] = tokenizer_of(file);
  out["chat_template"] = metadata.has("tokenizer.chat_template");
  out["license"] = metadata.get_string("general.license").value_or("not stated");
  out["sampling"] = Json::object();
  const FileSampling sampling = file_sampling(metadata);
  for (const auto& [setting, value] : sampling.values) out["sampling"][std::string(setting->name())] = value;
  for (const std::string& key : sampling.ignored) out["sampling_ignored"].push_back(key);
  out["hadamard"] = metadata.has("prism.hadamard.version");
  out["supported"] = planned.plan.has_value();
  if (!planned.plan) {
    out["refusal"] = planned.refusal;
    return out;
  }
  const Plan& plan = *planned.plan;
  out["context"] = plan.n_context_train;
  out["layers"] = plan.n_layers;
  out["attention_layers"] = plan.kv_layers.size();
  out["recurrent_layers"] = plan.state_layers.size();
  out["embedding"] = plan.n_embd;
  out["memory"] = Json::array();
  for (const auto& [context, need] :
       memory_at_contexts(plan, [&](int32_t c) { return memory_need(plan, {.context = c}); }))
    out["memory"].push_back({{"context", context}, {"bytes", need.total()}});
  return out;
}

std::string value_text(const gguf::Value& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, gguf::Array>) {
          return fmt::format("[{} x {}]", v.size(), gguf::value_type_name(v.element));
        } else if constexpr (std::is_same_v<T, std::string>) {
          const size_t end = std::min(v.find('\n'), size_t{60});
          return v.size() > end ? v.substr(0, end) + " ..." : v;
        } else {
          return fmt::format("{}", v);
        }
      },
      value.data);
}

void print_summary(const Json& s, const gguf::File& file) {
  const auto line = [](std::string_view name, const std::string& value) {
    fmt::print("{:<14}{}\n", name, printable(value));
  };
  const auto text = [&](const char* key) { return s[key].get<std::string>(); };
  line("model", text("name"));
  line("file", fmt::format("{} ({}, GGUF v{})", file.path(), human_bytes(file.file_bytes()), file.version()));
  line("family", text("architecture"));
  line("parameters", fmt::format("{} ({}), {:.2f} bits a weight", human_count(parameter_count(file)),
                                 grouped(static_cast<long long>(parameter_count(file))), bits_per_weight(file)));
  if (s["supported"].get<bool>()) {
    line("layers",
         fmt::format("{} ({} attention, {} recurrent), width {}", s["layers"].get<int>(),
                     s["attention_layers"].get<int>(), s["recurrent_layers"].get<int>(), s["embedding"].get<int>()));
    line("context", fmt::format("{} tokens in training", grouped(s["context"].get<long long>())));
  }
  line("tokenizer", text("tokenizer"));
  line("template", s["chat_template"].get<bool>() ? "yes" : "no");
  line("license", text("license"));
  std::string sampling;
  for (const auto& [name, value] : s["sampling"].items())
    sampling += fmt::format("{} {:.4g} ", name, value.get<double>());
  for (const auto& key : s.value("sampling_ignored", Json::array()))
    sampling += fmt::format("({} is not implemented) ", key.get<std::string>());
  line("sampling", sampling.empty() ? "not stated" : sampling);
  if (s["hadamard"].get<bool>()) line("basis", "weights are stored in a Hadamard-rotated basis");
  Table formats({"FORMAT", ">TENSORS", ">WEIGHTS", ">SIZE", ">BITS"});
  for (const FormatShare& f : format_mix(file))
    formats.add({f.name, fmt::format("{}", f.tensors), human_count(f.parameters), human_bytes(f.bytes),
                 fmt::format("{:.2f}", f.bits_per_weight())});
  fmt::print("\n{}\n", formats.text());
  if (!s["supported"].get<bool>()) {
    line("cannot run:", text("refusal"));
    return;
  }
  Table memory({">CONTEXT", ">MEMORY"});
  for (const auto& m : s["memory"])
    memory.add({grouped(m["context"].get<long long>()), human_bytes(m["bytes"].get<uint64_t>())});
  fmt::print("{}", memory.text());
}

void print_details(const gguf::File& file, const Flags& flags) {
  if (flags.metadata) {
    Table table({"KEY", "TYPE", "VALUE"});
    for (const auto& [key, value] : file.metadata().items())
      table.add({key, std::string(gguf::value_type_name(value.type)), value_text(value)});
    fmt::print("\n{}", table.text());
  }
  if (flags.tensors) {
    Table table({"TENSOR", "FORMAT", ">SHAPE", ">BYTES"});
    for (const gguf::TensorInfo& t : file.tensors())
      table.add({t.name, std::string(type_info(t.type).name),
                 fmt::format("{}", fmt::join(t.ne.begin(), t.ne.begin() + t.n_dims, " x ")),
                 grouped(static_cast<long long>(t.nbytes))});
    fmt::print("\n{}", table.text());
  }
}

int show(const Flags& flags) {
  const gguf::File file = gguf::File::open(flags.file.resolve());
  const Json s = summary(file, try_plan(file));
  if (flags.json) {
    print_json(s);
    return 0;
  }
  print_summary(s, file);
  print_details(file, flags);
  return 0;
}

}  // namespace

Action setup_show(FlagSet& set) {
  const auto flags = std::make_shared<Flags>();
  flags->file.declare(set, true);
  set.flag("--tensors", flags->tensors, "list every tensor");
  set.flag("--metadata", flags->metadata, "list every metadata key");
  set.flag("--json", flags->json, "as one JSON object");
  return [flags] { return show(*flags); };
}

}  // namespace tern::cli
