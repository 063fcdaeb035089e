// Ollama's API about models: /api/tags, /api/show, /api/ps, /api/version, and what its clients ask first: /.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "engine/memory_need.h"
#include "engine/sampler_settings.h"
#include "server/api_ollama.h"

namespace tern::server {
namespace {

/// The release whose API this is: clients compare it, and some ask for 0.6.4 and above.
constexpr const char* kVersion = "0.12.0-tern." TERN_VERSION;
constexpr const char* kNever = "9999-12-31T23:59:59Z";

struct FileFacts {
  std::string changed, digest;
  uint64_t bytes = 0;
};

/// The digest names a version of a file (its path, size and time), which is what clients use it for: its bytes are not
/// hashed.
FileFacts file_facts(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) info = {};
  FileFacts out{.changed = ollama_time(std::chrono::system_clock::from_time_t(info.st_mtime)),
                .digest = {},
                .bytes = static_cast<uint64_t>(info.st_size)};
  const std::string what = fmt::format("{}\n{}\n{}", path, info.st_size, info.st_mtime);
  unsigned char hash[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(what.data()), what.size(), hash);
  for (const unsigned char byte : hash) out.digest += fmt::format("{:02x}", byte);
  return out;
}

/// The format that most bytes of a file are in.
std::string_view main_format(const gguf::File& file) {
  std::map<TensorType, uint64_t> bytes;
  for (const gguf::TensorInfo& tensor : file.tensors()) bytes[tensor.type] += tensor.nbytes;
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : type_info(most->first).name;
}

/// "108M", "7.2B".
std::string parameter_size(uint64_t n) {
  const auto x = static_cast<double>(n);
  return n >= 1'000'000'000 ? fmt::format("{:.1f}B", x / 1e9) : fmt::format("{:.0f}M", x / 1e6);
}

/// Of a model that is not loaded nothing is known: its file is not opened for a list.
Json details(const ServedModel* model) {
  const std::string family = model ? model->model->plan().architecture : "";
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", family},
          {"families", model ? Json::array({family}) : Json::array()},
          {"parameter_size", model ? parameter_size(parameter_count(model->model->file())) : ""},
          {"quantization_level", model ? main_format(model->model->file()) : ""}};
}

Json tag(const Registry::Entry& entry) {
  const FileFacts facts = file_facts(entry.path);
  return {{"name", entry.name},  {"model", entry.name},    {"modified_at", facts.changed},
          {"size", facts.bytes}, {"digest", facts.digest}, {"details", details(entry.model.get())}};
}

Reply tags(const Services& services) {
  Json models = Json::array();
  for (const Registry::Entry& entry : services.models.list()) models.push_back(tag(entry));
  return json_response({{"models", std::move(models)}});
}

Reply loaded(const Services& services) {
  Json models = Json::array();
  for (const Registry::Entry& entry : services.models.list()) {
    if (!entry.model) continue;
    const uint64_t bytes = entry.model->model->memory().total();
    Json one = tag(entry);
    one["size"] = bytes;
    one["size_vram"] = entry.model->model->backend().info().name == "cuda" ? bytes : 0;
    one["context_length"] = entry.model->scheduler->context();
    one["expires_at"] = kNever;
    models.push_back(std::move(one));
  }
  return json_response({{"models", std::move(models)}});
}

Json model_info(const ServedModel& model) {
  Json out = Json::object();
  for (const auto& [key, value] : model.model->file().metadata().items()) {
    if (key.starts_with("tokenizer.") || key.starts_with("prism.")) continue;
    std::visit(
        [&, &name = key](const auto& v) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(v)>, gguf::Array>) out[name] = v;
        },
        value.data);
  }
  out["general.parameter_count"] = parameter_count(model.model->file());
  // What clients take for the largest num_ctx; the trained one may be larger than what is served.
  out[model.model->plan().architecture + ".context_length"] = model.scheduler->context();
  return out;
}

Reply show(const Services& services, HttpRequest& http) {
  Body body(http.body);
  const ServedPtr model = services.models.find(ollama_name(services, body));
  body.ignore({"verbose", "system", "template", "options"});
  body.refuse_rest();
  std::string parameters;
  for (const SamplerSetting& setting : sampler_settings()) {
    std::string name(setting.name() == "temp" ? "temperature" : setting.name());
    std::replace(name.begin(), name.end(), '-', '_');
    parameters += fmt::format("{:<30} {:.6g}\n", name, setting.value(model->sampling));
  }
  Json capabilities = Json::array({"completion"});
  if (model->reply_format.tools != text::ToolSyntax::kNone) capabilities.push_back("tools");
  if (ollama_thinks(*model)) capabilities.push_back("thinking");
  const gguf::File& file = model->model->file();
  return json_response({{"license", file.metadata().get_string("general.license").value_or("")},
                        {"modelfile", fmt::format("FROM {}\n", model->name)},
                        {"parameters", parameters},
                        {"template", model->template_source},
                        {"details", details(model.get())},
                        {"model_info", model_info(*model)},
                        {"capabilities", std::move(capabilities)},
                        {"modified_at", file_facts(file.path()).changed}});
}

}  // namespace

std::string ollama_time(std::chrono::system_clock::time_point time) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(static_cast<std::time_t>(us / 1'000'000)),
                     us % 1'000'000);
}

std::string ollama_name(const Services& services, Body& body) {
  constexpr std::string_view kLatest = ":latest";
  const auto old = body.string("name");
  std::string name = body.string("model").value_or(old.value_or(""));
  const std::vector<Registry::Entry> known = services.models.list();
  const bool exact = std::any_of(known.begin(), known.end(), [&](const auto& entry) { return entry.name == name; });
  if (!exact && name.ends_with(kLatest)) name.resize(name.size() - kLatest.size());
  return name;
}

bool ollama_thinks(const ServedModel& model) {
  return !model.reply_format.think_open.empty() || model.reply_format.tools == text::ToolSyntax::kHarmony;
}

void add_ollama_model_routes(Router& router, const Services& services) {
  const auto add = [&](const char* method, const char* path, Handler handler) {
    router.add(method, path, std::move(handler), ollama_error);
  };
  add("GET", "/",
      [](HttpRequest&) { return HttpResponse{.type = "text/plain; charset=utf-8", .body = "Ollama is running"}; });
  add("GET", "/api/version", [](HttpRequest&) { return json_response({{"version", kVersion}}); });
  add("GET", "/api/tags", [services](HttpRequest&) { return tags(services); });
  add("GET", "/api/ps", [services](HttpRequest&) { return loaded(services); });
  add("POST", "/api/show", [services](HttpRequest& r) { return show(services, r); });
}

}  // namespace tern::server
