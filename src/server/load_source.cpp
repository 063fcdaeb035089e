#include "server/load_source.h"

#include <memory>
#include <mutex>
#include <optional>

namespace tern::server {
namespace {

/// How it ended, between the thread that loads and the one that serves the client, who may have left.
struct Outcome {
  std::mutex mutex;
  std::optional<std::string> error;
  std::function<void()> wake;
};

class LoadSource final : public Source {
 public:
  LoadSource(std::shared_ptr<Outcome> outcome, std::string name, HttpResponse loaded, ErrorEnvelope envelope)
      : outcome_(std::move(outcome)), name_(std::move(name)), loaded_(std::move(loaded)), envelope_(envelope) {}
  ~LoadSource() override {
    const std::lock_guard lock(outcome_->mutex);
    outcome_->wake = {};
  }
  void start(std::function<void()> wake) override {
    const std::lock_guard lock(outcome_->mutex);
    outcome_->wake = std::move(wake);
  }
  Piece next() override {
    const std::lock_guard lock(outcome_->mutex);
    return {.bytes = {}, .end = outcome_->error.has_value()};
  }
  HttpResponse whole() override {
    const std::lock_guard lock(outcome_->mutex);
    return outcome_->error->empty() ? loaded_ : error_response(load_failed(name_, *outcome_->error), envelope_);
  }

 private:
  const std::shared_ptr<Outcome> outcome_;
  const std::string name_;
  const HttpResponse loaded_;
  const ErrorEnvelope envelope_;
};

}  // namespace

Reply load_model(Registry& models, const std::string& name, HttpResponse loaded, ErrorEnvelope envelope) {
  auto outcome = std::make_shared<Outcome>();
  models.load(name, [outcome](const std::string& error) {
    std::function<void()> ring;
    {
      const std::lock_guard lock(outcome->mutex);
      outcome->error = error;
      ring = outcome->wake;
    }
    if (ring) ring();
  });
  return Reply::late(std::make_shared<LoadSource>(std::move(outcome), name, std::move(loaded), envelope));
}

}  // namespace tern::server
