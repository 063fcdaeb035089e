// The models that are served, by name. They load, unload and swap while the server runs; a request holds its model, so
// that it ends on the weights it began with.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/model.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "server/api_error.h"
#include "text/chat_template.h"
#include "text/reply_parser.h"

namespace tern::server {

/// A model that answers. Immutable but for the scheduler's work.
struct ServedModel {
  std::string name;
  std::shared_ptr<Model> model;
  std::optional<text::ChatTemplate> chat_template;
  std::string template_source;
  text::ReplyFormat reply_format;
  SamplerOptions sampling;  // where a request says nothing
  int64_t created = 0;      // seconds since 1970: when it was loaded
  uint64_t file_bytes = 0;
  std::unique_ptr<Scheduler> scheduler;  // ends before the model does

  const text::Tokenizer& tokenizer() const { return model->tokenizer(); }
};
using ServedPtr = std::shared_ptr<const ServedModel>;

struct RegistryOptions {
  ModelOptions engine{};        // all but path and progress
  std::string chat_template{};  // source; empty: the file's own
  SchedulerLimits limits{};
  /// The defaults of a model: what its file recommends under what the operator chose.
  std::function<SamplerOptions(const gguf::File&)> sampling{};
};

class Registry {
 public:
  enum class State : uint8_t { kUnloaded, kLoading, kReady, kFailed };
  struct Entry {
    std::string name, path;
    State state = State::kUnloaded;
    double progress = 0;  // 0..1 of a load
    std::string error{};  // of kFailed
    ServedPtr model{};    // of kReady, and while a ready one is loaded anew
  };

  explicit Registry(RegistryOptions options);
  /// Nobody holds a ServedPtr any more.
  ~Registry();

  /// Makes a model known without loading it. The first known is what a request without a name gets, unless another is
  /// the only one ready.
  void add(const std::string& name, const std::string& path);
  /// All .gguf files of a folder, by their names without the extension. kIo.
  void add_folder(const std::string& folder);
  /// Told once how a load ended: nothing when the model serves, else why it does not. From any thread; must not block.
  using Loaded = std::function<void(const std::string& error)>;
  /// Begins to load, in the background and one at a time; a ready one is replaced once the new one is ready. kNotFound.
  void load(const std::string& name, Loaded done = {});
  /// Forgets the weights once the last request ends. kNotFound.
  void unload(const std::string& name);
  /// The model to answer a request that names `name` (empty: the default). ApiError: 404 model_not_found with the names
  /// there are, 503 while it loads, 500 when that failed, 409 when it is not loaded.
  ServedPtr find(const std::string& name) const;
  std::vector<Entry> list() const;
  /// Called after every change of a state, from any thread.
  void on_change(std::function<void()> changed);

 private:
  struct Slot {
    Entry entry;
    std::shared_ptr<std::atomic<double>> progress = std::make_shared<std::atomic<double>>(0.0);
    std::vector<Loaded> waiting{};
  };
  void keep_house();  // the thread that loads and frees
  void later(std::function<void()> task);
  void load_now(const std::string& name, const std::string& path);
  std::string try_load(const std::string& name, const std::string& path);  // what was wrong
  std::unique_ptr<ServedModel> open(const std::string& name, const std::string& path);
  void change(const std::string& name, const std::function<void(Entry&)>& edit);
  Slot& slot(const std::string& name);

  const RegistryOptions options_;
  mutable std::mutex mutex_;
  std::vector<std::string> order_;
  std::map<std::string, Slot> slots_;
  std::function<void()> changed_;
  std::mutex tasks_mutex_;
  std::condition_variable tasks_changed_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::thread keeper_;  // last: starts when all else is there
};

std::string_view state_name(Registry::State state) noexcept;
ApiError load_failed(const std::string& name, const std::string& error);

}  // namespace tern::server
