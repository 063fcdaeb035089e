// tern serve: answers over HTTP, in the words of the APIs that clients already speak.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "cli/flags.h"
#include "cli/model_summary.h"
#include "cli/output.h"
#include "cli/text_input.h"
#include "cli/verbs.h"
#include "gguf/file.h"
#include "server/server.h"

namespace tern::cli {
namespace {

using server::Registry;

struct Flags {
  ModelFlags model;
  SamplingFlags sampling;
  std::string host = "127.0.0.1", alias, models_dir, template_file, api_keys, api_key_file, origins, tls_cert, tls_key;
  int32_t port = 8383, sequences = 4, queue = 512, chunk = 256, http_threads = 2;
  bool no_prefix_cache = false, verbose = false;
};

/// Thousands of connections are as many descriptors; the default of many systems is 1024.
size_t raise_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

/// The parts of a list, empty ones left out.
std::vector<std::string> split(const std::string& list, char by) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(by, at), list.size());
    if (end > at) parts.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

server::ServerOptions server_options(const Flags& flags, const FlagSet& set) {
  server::ServerOptions options;
  options.http.host = flags.host;
  options.http.port = static_cast<uint16_t>(flags.port);
  options.http.tls_cert = flags.tls_cert;
  options.http.tls_key = flags.tls_key;
  options.http.handler_threads = flags.http_threads;
  options.http.limits.connections = std::min<size_t>(options.http.limits.connections, raise_descriptors() - 64);
  options.api_keys = split(flags.api_keys, ',');
  if (!flags.api_key_file.empty())
    for (std::string& key : split(read_text_file(flags.api_key_file), '\n')) options.api_keys.push_back(std::move(key));
  options.cors_origins = split(flags.origins, ',');
  options.models.engine = flags.model.options({.sequences = flags.sequences});
  // Of models with recurrent state: what three earlier conversations a place can be taken up again from.
  options.models.engine.limits.checkpoints = 3 * flags.sequences;
  if (!flags.template_file.empty()) options.models.chat_template = read_text_file(flags.template_file);
  options.models.limits = {.queue = flags.queue, .chunk = flags.chunk, .prefix_cache = !flags.no_prefix_cache};
  options.models.sampling = [&flags, &set](const gguf::File& file) {
    SamplingFlags sampling = flags.sampling;
    sampling.take_file(file_sampling(file.metadata()), set);
    return sampling.options;
  };
  return options;
}

/// What is served by now, once a model: device, model, placement, memory.
void print_ready(const server::ServedModel& served) {
  Model& model = *served.model;
  const BackendInfo info = model.backend().info();
  const Runner::Limits& limits = model.runner().limits();
  const MemoryNeed& need = model.memory();
  fmt::print(stderr, "{}: {}, {} parameters, {:.2f} bits a weight, on {} ({}), loaded in {:.2f} s\n",
             printable(served.name), model.plan().architecture, human_count(parameter_count(model.file())),
             bits_per_weight(model.file()), info.device, info.name, model.load_seconds());
  fmt::print(stderr, "{}: context {} tokens a request, {} at a time, KV {}/{} {}, memory {}\n", printable(served.name),
             served.scheduler->context(), limits.sequences, kv_type_name(limits.k), kv_type_name(limits.v),
             human_bytes(need.kv), human_bytes(need.total()));
  for (const std::string& line : placement_lines(model.placement()))
    fmt::print(stderr, "{}: {}\n", printable(served.name), line);
  fmt::print(stderr, "{}: sampling {}{}\n", printable(served.name), sampling_text(served.sampling),
             served.chat_template ? "" : "; no chat template: /v1/completions only");
}

void announce_changes(server::Server& server) {
  struct Known {
    std::mutex mutex;
    std::map<std::string, std::weak_ptr<const server::ServedModel>> models;
  };
  server.models().on_change([&server, known = std::make_shared<Known>()] {
    const std::lock_guard lock(known->mutex);
    for (const Registry::Entry& entry : server.models().list()) {
      std::weak_ptr<const server::ServedModel>& last = known->models[entry.name];
      if (entry.model && last.lock() != entry.model) print_ready(*entry.model);
      last = entry.model;
    }
  });
}

int serve(Flags& flags, const FlagSet& set) {
  init_logging(flags.verbose ? 1 : 0);
  server::Server server(server_options(flags, set));
  Registry& models = server.models();
  // With a folder and no model named, nothing is loaded until somebody asks.
  std::string first;
  if (!flags.model.file.named().empty() || flags.models_dir.empty()) {
    const std::string path = flags.model.file.resolve();
    (void)gguf::File::open(path);  // what is no model is told at once, and not by a server that never gets ready
    first = flags.alias.empty() ? std::filesystem::path(path).stem().string() : flags.alias;
    models.add(first, path);
  }
  if (!flags.models_dir.empty()) models.add_folder(flags.models_dir);
  if (!flags.model.quiet) {
    fmt::print(stderr, "tern {} listening on http{}://{}:{}\n", version(), flags.tls_cert.empty() ? "" : "s",
               flags.host.find(':') == std::string::npos ? flags.host : "[" + flags.host + "]", server.port());
    announce_changes(server);
  }
  if (!first.empty()) models.load(first);
  server.run(true);
  if (!flags.model.quiet) fmt::print(stderr, "tern: stopped\n");
  return 0;
}

}  // namespace

Action setup_serve(FlagSet& set) {
  const auto flags = std::make_shared<Flags>();
  flags->model.declare(set, true);
  set.option("--alias", flags->alias, "the name the model is served under (default: the file's, without .gguf)")
      .environment("LLAMA_ARG_ALIAS");
  set.option("--models-dir", flags->models_dir,
             "a folder of .gguf files that may be loaded while serving (POST /models/load)");
  set.option("--chat-template-file", flags->template_file, "a Jinja template to use in place of the file's own");
  set.option("--parallel", flags->sequences, "-np: answers at a time")
      .between(1, 4096)
      .environment("LLAMA_ARG_N_PARALLEL");
  set.option("--queue", flags->queue, "requests that may wait; more are refused with 503").between(0, 1 << 20);
  set.option("--prefill-chunk", flags->chunk, "tokens of a prompt read in a step that also decodes").between(1, 65536);
  set.flag("--no-prefix-cache", flags->no_prefix_cache, "read every prompt from its beginning");
  set.group("Network");
  set.option("--host", flags->host, "the address to listen on").environment("LLAMA_ARG_HOST");
  set.option("--port", flags->port, "the port (0: any that is free)").between(0, 65535).environment("LLAMA_ARG_PORT");
  set.option("--api-key", flags->api_keys, "the key that requests must give, or several: KEY,KEY")
      .environment("LLAMA_API_KEY");
  set.option("--api-key-file", flags->api_key_file, "a file with a key a line");
  set.option("--tls-cert", flags->tls_cert, "PEM file of the certificate: serve https");
  set.option("--tls-key", flags->tls_key, "PEM file of its key");
  set.option("--cors-origin", flags->origins, "origins of web pages that may ask, exactly: https://a.example,...");
  set.option("--threads-http", flags->http_threads, "threads that parse requests and render templates").between(1, 64);
  set.flag("-v,--verbose", flags->verbose, "a line a request (never its text)");
  set.group("Sampling");
  flags->sampling.declare_settings(set);
  return [flags, &set] { return serve(*flags, set); };
}

}  // namespace tern::cli
