#include "server/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "engine/chat.h"

namespace tern::server {

std::string_view state_name(Registry::State state) noexcept {
  switch (state) {
    case Registry::State::kUnloaded:
      return "unloaded";
    case Registry::State::kLoading:
      return "loading";
    case Registry::State::kReady:
      return "loaded";
    case Registry::State::kFailed:
      break;
  }
  return "failed";
}

ApiError load_failed(const std::string& name, const std::string& error) {
  return {500, "server_error", fmt::format("the model '{}' could not be loaded: {}", name, error)};
}

Registry::Registry(RegistryOptions options) : options_(std::move(options)), keeper_([this] { keep_house(); }) {}

Registry::~Registry() {
  {
    const std::lock_guard lock(mutex_);
    changed_ = {};
    for (auto& [name, slot] : slots_) slot.entry.model.reset();  // freed by the keeper
  }
  {
    const std::lock_guard lock(tasks_mutex_);
    ending_ = true;
  }
  tasks_changed_.notify_all();
  keeper_.join();
  // A load that was under way has left its model behind the reset: it goes while there is still a list to put it on.
  for (auto& [name, slot] : slots_) slot.entry.model.reset();
  for (const auto& task : tasks_) task();
}

void Registry::keep_house() {
  std::unique_lock lock(tasks_mutex_);
  for (;;) {
    tasks_changed_.wait(lock, [&] { return ending_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

void Registry::later(std::function<void()> task) {
  const std::lock_guard lock(tasks_mutex_);
  tasks_.push_back(std::move(task));
  tasks_changed_.notify_one();
}

void Registry::add(const std::string& name, const std::string& path) {
  const std::lock_guard lock(mutex_);
  auto [it, added] = slots_.try_emplace(name);
  it->second.entry.name = name;
  it->second.entry.path = path;
  if (added) order_.push_back(name);
}

void Registry::add_folder(const std::string& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> paths;
  for (const auto& file : std::filesystem::directory_iterator(folder, error))
    if (file.path().extension() == ".gguf") paths.push_back(file.path());
  if (error) fail(ErrorCode::kIo, "cannot list {}: {}", folder, error.message());
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    const std::lock_guard lock(mutex_);
    // A file that is known under another name already (-m, --alias) is not listed twice.
    const bool known = std::any_of(slots_.begin(), slots_.end(), [&](const auto& s) {
      return std::filesystem::equivalent(s.second.entry.path, path, error);
    });
    const std::string name = path.stem().string();
    if (known || slots_.contains(name)) continue;
    slots_[name].entry = {.name = name, .path = path.string()};
    order_.push_back(name);
  }
}

Registry::Slot& Registry::slot(const std::string& name) {
  const auto it = slots_.find(name);
  if (it == slots_.end())
    fail(ErrorCode::kNotFound, "there is no model '{}': known are {}", name, fmt::join(order_, ", "));
  return it->second;
}

void Registry::change(const std::string& name, const std::function<void(Entry&)>& edit) {
  std::function<void()> changed;
  ServedPtr replaced;  // released without the lock
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = slot(name).entry;
    replaced = entry.model;
    edit(entry);
    changed = changed_;
  }
  if (changed) changed();
}

void Registry::on_change(std::function<void()> changed) {
  const std::lock_guard lock(mutex_);
  changed_ = std::move(changed);
}

void Registry::load(const std::string& name, Loaded done) {
  std::string path;
  bool begin = false;
  change(name, [&](Entry& entry) {
    begin = entry.state != State::kLoading;
    path = entry.path;
    if (begin) slots_[name].progress->store(0);
    if (done) slots_[name].waiting.push_back(std::move(done));
    entry.state = State::kLoading;
    entry.error.clear();
  });
  if (begin) later([this, name, path] { load_now(name, path); });
}

void Registry::unload(const std::string& name) {
  change(name, [](Entry& entry) {
    entry.model.reset();
    entry.state = State::kUnloaded;  // a load under way sees it and lets go of its result
  });
}

void Registry::load_now(const std::string& name, const std::string& path) {
  const std::string error = try_load(name, path);
  std::vector<Loaded> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(slot(name).waiting);
  }
  for (const Loaded& done : waiting) done(error);
}

std::string Registry::try_load(const std::string& name, const std::string& path) {
  std::string wrong;
  try {
    // Freed by the keeper, never by the thread of its own scheduler or by one that serves connections.
    ServedPtr model(open(name, path).release(), [this](const ServedModel* old) { later([old] { delete old; }); });
    change(name, [&](Entry& entry) {
      if (entry.state != State::kLoading) {
        wrong = "it was unloaded while it was loaded";
        return;
      }
      entry.model = model;
      entry.state = State::kReady;
    });
  } catch (const std::exception& error) {
    spdlog::error("cannot load {}: {}", name, error.what());
    change(name, [&](Entry& entry) {
      // The one that was ready stays in service.
      entry.state = entry.model ? State::kReady : State::kFailed;
      entry.error = error.what();
    });
    wrong = error.what();
  }
  return wrong;
}

std::unique_ptr<ServedModel> Registry::open(const std::string& name, const std::string& path) {
  ModelOptions engine = options_.engine;
  engine.path = path;
  {
    const std::lock_guard lock(mutex_);
    engine.progress = [outer = options_.engine.progress, progress = slot(name).progress](uint64_t done,
                                                                                         uint64_t total) {
      progress->store(total ? static_cast<double>(done) / static_cast<double>(total) : 1);
      if (outer) outer(done, total);
    };
  }
  auto served = std::make_unique<ServedModel>();
  served->name = name;
  served->model = std::make_shared<Model>(engine);
  const gguf::File& file = served->model->file();
  const text::Tokenizer& tokenizer = served->model->tokenizer();
  if (options_.chat_template.empty()) {
    served->template_source = file.metadata().get_string("tokenizer.chat_template").value_or("");
    served->chat_template = chat_template(file, tokenizer);
  } else {
    const auto text_of = [&](std::optional<int32_t> id) { return id ? tokenizer.token_text(*id) : std::string(); };
    served->template_source = options_.chat_template;
    served->chat_template =
        text::ChatTemplate::from_source(options_.chat_template, text_of(tokenizer.bos()), text_of(tokenizer.eos()));
  }
  if (served->chat_template)
    served->reply_format = text::probe_reply_format(*served->chat_template, served->template_source);
  served->sampling = options_.sampling ? options_.sampling(file) : SamplerOptions{};
  served->created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  served->file_bytes = std::filesystem::file_size(path);
  served->scheduler = std::make_unique<Scheduler>(served->model, options_.limits);
  return served;
}

ServedPtr Registry::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const Entry* entry = nullptr;
  if (name.empty()) {
    // One that is ready, else one that will be, else the first, to say what is wrong with it.
    const auto rank = [](const Entry& e) { return e.model ? 2 : e.state == State::kLoading ? 1 : 0; };
    for (const std::string& known : order_) {
      const Entry& candidate = slots_.at(known).entry;
      if (!entry || rank(candidate) > rank(*entry)) entry = &candidate;
    }
  } else if (const auto it = slots_.find(name); it != slots_.end()) {
    entry = &it->second.entry;
  }
  if (!entry)
    throw ApiError(404, "not_found_error",
                   order_.empty() ? "no model is served"
                                  : fmt::format("there is no model '{}': served are {}", name, fmt::join(order_, ", ")),
                   "model", "model_not_found");
  if (entry->model) return entry->model;
  switch (entry->state) {
    case State::kLoading: {
      ApiError loading(503, "unavailable_error", "Loading model");
      loading.retry_after = 1;
      loading.details["progress"] = slots_.at(entry->name).progress->load();
      throw loading;
    }
    case State::kFailed:
      throw load_failed(entry->name, entry->error);
    default:
      throw ApiError(409, "invalid_request_error",
                     fmt::format("the model '{}' is not loaded: POST /models/load {{\"model\": \"{}\"}} first",
                                 entry->name, entry->name),
                     "model", "model_not_loaded");
  }
}

std::vector<Registry::Entry> Registry::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> out;
  for (const std::string& name : order_) {
    const Slot& slot = slots_.at(name);
    out.push_back(slot.entry);
    out.back().progress = slot.progress->load();
  }
  return out;
}

}  // namespace tern::server
