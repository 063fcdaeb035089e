// Embeddings in the words of OpenAI (/v1/embeddings) and of Ollama (/api/embed, and /api/embeddings of old clients).
#include <fmt/format.h>
#include <openssl/evp.h>

#include <chrono>
#include <cmath>

#include "server/api_ollama.h"

namespace tern::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostInputs = 2048;

struct EmbeddingJob {
  ServedPtr model;
  std::vector<std::vector<int32_t>> prompts;
  Pooling pooling = Pooling::kMean;
};

/// Gives the prompts to the scheduler, as many at a time as it runs together: others get their turn in between.
class EmbeddingSource final : public Source {
 public:
  using Write = std::function<HttpResponse(const std::vector<Ending>&, double seconds)>;
  EmbeddingSource(EmbeddingJob job, Write write, ErrorEnvelope envelope)
      : job_(std::move(job)), write_(std::move(write)), envelope_(envelope), endings_(job_.prompts.size()) {}
  ~EmbeddingSource() override {
    {
      const std::lock_guard lock(mailbox_->mutex);
      mailbox_->wake = {};
    }
    for (const RequestId id : ids_) job_.model->scheduler->cancel(id);  // those that have ended are unknown to it
  }

  /// Errors as Scheduler::submit, but for a queue that is full while something of this runs.
  void submit() {
    const int32_t most = job_.model->model->runner().limits().sequences;
    for (; open_ < most && ids_.size() < job_.prompts.size(); ++open_) {
      const size_t index = ids_.size();
      try {
        ids_.push_back(job_.model->scheduler->submit({.prompt = job_.prompts[index], .embed = job_.pooling},
                                                     std::make_shared<Postman>(mailbox_, index)));
      } catch (const QueueFull&) {
        if (open_ == 0) throw;
        return;
      } catch (...) {
        ApiError error = current_error();
        error.param = "input";
        throw error;
      }
    }
  }

  void start(std::function<void()> wake) override {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->wake = std::move(wake);
  }
  Piece next() override {
    std::vector<std::pair<size_t, Ending>> letters;
    {
      const std::lock_guard lock(mailbox_->mutex);
      letters.swap(mailbox_->letters);
    }
    for (auto& [index, ending] : letters) {
      --open_;
      ++done_;
      if (ending.reason == EndReason::kFailed && !error_) error_ = error_of(ending.failure);
      if (ending.reason == EndReason::kCancelled && !error_)
        error_ = ApiError(500, "server_error", "the embedding was cancelled");
      endings_[index] = std::move(ending);
    }
    try {
      if (!error_) submit();
    } catch (...) {
      error_ = current_error();
    }
    return {.bytes = {}, .end = error_.has_value() || done_ == endings_.size()};
  }
  HttpResponse whole() override {
    if (error_) return error_response(*error_, envelope_);
    return write_(endings_, std::chrono::duration<double>(Clock::now() - begun_).count());
  }

 private:
  struct Mailbox {
    std::mutex mutex;
    std::vector<std::pair<size_t, Ending>> letters;
    std::function<void()> wake;
  };
  class Postman final : public Listener {
   public:
    Postman(std::shared_ptr<Mailbox> mailbox, size_t index) : mailbox_(std::move(mailbox)), index_(index) {}
    void on_token(const TokenEvent&) override {}
    void on_end(const Ending& ending) override {
      std::function<void()> ring;
      {
        const std::lock_guard lock(mailbox_->mutex);
        mailbox_->letters.emplace_back(index_, ending);
        ring = mailbox_->wake;
      }
      if (ring) ring();
    }

   private:
    std::shared_ptr<Mailbox> mailbox_;
    const size_t index_;
  };

  const EmbeddingJob job_;
  const Write write_;
  const ErrorEnvelope envelope_;
  const Clock::time_point begun_ = Clock::now();
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::vector<RequestId> ids_;  // of the prompts so far, in order
  std::vector<Ending> endings_;
  int32_t open_ = 0;
  size_t done_ = 0;
  std::optional<ApiError> error_;
};

Reply embed(EmbeddingJob job, EmbeddingSource::Write write, ErrorEnvelope envelope) {
  const auto source = std::make_shared<EmbeddingSource>(std::move(job), std::move(write), envelope);
  source->submit();
  return Reply::late(source);
}

/// What the request says, else what the file says, else the mean.
Pooling pooling_of(Body& body, const ServedModel& model) {
  if (const auto said = body.string("pooling")) {
    if (*said == "mean") return Pooling::kMean;
    if (*said == "last") return Pooling::kLast;
    throw bad_request("pooling", fmt::format("'pooling' must be mean or last, not '{}'", *said));
  }
  constexpr int64_t kMean = 1, kLast = 3;  // llama.cpp's numbers
  const gguf::File& file = model.model->file();
  const int64_t type = file.metadata().get_int(model.model->plan().architecture + ".pooling_type").value_or(kMean);
  if (type != kMean && type != kLast)
    throw bad_request("pooling", fmt::format("the file asks for pooling of type {}, which is not implemented: say "
                                             "\"pooling\": \"mean\" or \"last\"",
                                             type));
  return type == kLast ? Pooling::kLast : Pooling::kMean;
}

/// A text, texts, tokens, or lists of tokens.
std::vector<std::vector<int32_t>> prompts_of(const ServedModel& model, const Json& input, std::string_view param) {
  const bool several = input.is_array() && !input.empty() && (input[0].is_string() || input[0].is_array());
  std::vector<std::vector<int32_t>> prompts;
  for (const Json& one : several ? input : Json::array({input})) {
    prompts.push_back(prompt_tokens(model, one, param));
    if (prompts.back().empty())
      throw bad_request(std::string(param), fmt::format("entry {} of '{}' is empty", prompts.size() - 1, param));
  }
  if (prompts.size() > kMostInputs)
    throw bad_request(std::string(param), fmt::format("'{}' has {} entries; at most {} are taken in one request", param,
                                                      prompts.size(), kMostInputs));
  return prompts;
}

std::vector<float> normalised(std::vector<float> v) {
  double sum = 0;
  for (const float x : v) sum += static_cast<double>(x) * static_cast<double>(x);
  if (sum > 0)
    for (float& x : v) x = static_cast<float>(x / std::sqrt(sum));
  return v;
}

/// Of the numbers as little-endian f32.
std::string base64(const std::vector<float>& v) {
  const size_t bytes = v.size() * sizeof(float);
  std::string out((bytes + 2) / 3 * 4 + 1, '\0');  // and the NUL that OpenSSL appends
  const auto* from = reinterpret_cast<const unsigned char*>(v.data());
  out.resize(static_cast<size_t>(
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), from, static_cast<int>(bytes))));
  return out;
}

int64_t prompt_tokens_of(const std::vector<Ending>& endings) {
  int64_t sum = 0;
  for (const Ending& ending : endings) sum += ending.prompt_tokens;
  return sum;
}

Reply openai_embeddings(const Services& services, HttpRequest& http) {
  Body body(http.body);
  EmbeddingJob job{.model = services.models.find(body.string("model").value_or("")), .prompts = {}};
  job.prompts = prompts_of(*job.model, body.required("input"), "input");
  job.pooling = pooling_of(body, *job.model);
  const std::string encoding = body.string("encoding_format").value_or("float");
  if (encoding != "float" && encoding != "base64")
    throw bad_request("encoding_format", "'encoding_format' must be float or base64");
  body.neutral("dimensions", job.model->model->plan().n_embd);
  body.ignore({"user"});
  body.refuse_rest();
  auto write = [name = job.model->name, encoding](const std::vector<Ending>& endings, double) {
    Json data = Json::array();
    for (const Ending& ending : endings) {
      const std::vector<float> v = normalised(ending.embedding);
      data.push_back({{"object", "embedding"},
                      {"index", data.size()},
                      {"embedding", encoding == "float" ? Json(v) : Json(base64(v))}});
    }
    const int64_t tokens = prompt_tokens_of(endings);
    return json_response({{"object", "list"},
                          {"data", std::move(data)},
                          {"model", name},
                          {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
  };
  return embed(std::move(job), std::move(write), openai_error);
}

/// The fields that both routes of Ollama take.
EmbeddingJob ollama_job(const Services& services, Body& body, const char* param) {
  EmbeddingJob job{.model = services.models.find(ollama_name(services, body)), .prompts = {}};
  job.prompts = prompts_of(*job.model, body.required(param), param);
  job.pooling = pooling_of(body, *job.model);
  Json sampling = Json::object();  // draws nothing here
  const int64_t context = ollama_options(body, *job.model, sampling);
  for (const auto& prompt : job.prompts)
    if (static_cast<int64_t>(prompt.size()) >= context)
      throw ApiError(400, "invalid_request_error",
                     fmt::format("'{}' has {} tokens, and the context holds {}", param, prompt.size(), context), param,
                     "context_length_exceeded");
  body.boolean("truncate");  // what does not fit has been refused
  body.neutral("dimensions", job.model->model->plan().n_embd);
  body.ignore({"keep_alive"});
  body.refuse_rest();
  return job;
}

Reply ollama_embed(const Services& services, HttpRequest& http) {
  Body body(http.body);
  EmbeddingJob job = ollama_job(services, body, "input");
  auto write = [name = job.model->name](const std::vector<Ending>& endings, double seconds) {
    Json all = Json::array();
    for (const Ending& ending : endings) all.push_back(normalised(ending.embedding));
    return json_response({{"model", name},
                          {"embeddings", std::move(all)},
                          {"total_duration", nanoseconds(seconds)},
                          {"load_duration", nanoseconds(endings.front().queue_seconds)},
                          {"prompt_eval_count", prompt_tokens_of(endings)}});
  };
  return embed(std::move(job), std::move(write), ollama_error);
}

/// Of old clients: one prompt, not normalised.
Reply ollama_embeddings(const Services& services, HttpRequest& http) {
  Body body(http.body);
  EmbeddingJob job = ollama_job(services, body, "prompt");
  auto write = [](const std::vector<Ending>& endings, double) {
    return json_response({{"embedding", endings.front().embedding}});
  };
  return embed(std::move(job), std::move(write), ollama_error);
}

}  // namespace

void add_embedding_routes(Router& router, const Services& services) {
  router.add("POST", "/v1/embeddings", [services](HttpRequest& r) { return openai_embeddings(services, r); });
  router.add(
      "POST", "/api/embed", [services](HttpRequest& r) { return ollama_embed(services, r); }, ollama_error);
  router.add(
      "POST", "/api/embeddings", [services](HttpRequest& r) { return ollama_embeddings(services, r); }, ollama_error);
}

}  // namespace tern::server
