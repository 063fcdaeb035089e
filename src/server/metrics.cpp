#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <sstream>

namespace tern::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

const prometheus::Histogram::BucketBoundaries kFirstToken{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
const prometheus::Histogram::BucketBoundaries kBetweenTokens{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                             0.1,   0.25,   0.5,   1,    2.5};

/// One figure of every scheduler.
struct Figure {
  const char *name, *help;
  MetricType type;
  double (*value)(const SchedulerStats&);
};

double share(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

constexpr MetricType kCounter = MetricType::Counter, kGauge = MetricType::Gauge;
const Figure kFigures[] = {
    {"tern_requests_total", "Requests taken by the scheduler.", kCounter,
     [](const SchedulerStats& s) { return double(s.requests); }},
    {"tern_requests_finished_total", "Answers that ended by themselves.", kCounter,
     [](const SchedulerStats& s) { return double(s.finished); }},
    {"tern_requests_cancelled_total", "Answers that were cancelled.", kCounter,
     [](const SchedulerStats& s) { return double(s.cancelled); }},
    {"tern_requests_failed_total", "Answers that failed.", kCounter,
     [](const SchedulerStats& s) { return double(s.failed); }},
    {"tern_prompt_tokens_total", "Tokens of prompts, cached ones included.", kCounter,
     [](const SchedulerStats& s) { return double(s.prompt_tokens); }},
    {"tern_cached_tokens_total", "Tokens of prompts that the prefix cache had.", kCounter,
     [](const SchedulerStats& s) { return double(s.cached_tokens); }},
    {"tern_generated_tokens_total", "Tokens generated.", kCounter,
     [](const SchedulerStats& s) { return double(s.generated_tokens); }},
    {"tern_steps_total", "Batches run.", kCounter, [](const SchedulerStats& s) { return double(s.steps); }},
    {"tern_busy_seconds_total", "Seconds spent running batches.", kCounter,
     [](const SchedulerStats& s) { return s.busy_seconds; }},
    {"tern_backend_failing", "1 while every batch fails, as /health says.", kGauge,
     [](const SchedulerStats& s) { return s.failing.empty() ? 0.0 : 1.0; }},
    {"tern_requests_queued", "Requests that wait.", kGauge, [](const SchedulerStats& s) { return double(s.queued); }},
    {"tern_requests_running", "Requests being answered: the occupancy of a batch.", kGauge,
     [](const SchedulerStats& s) { return double(s.running); }},
    {"tern_kv_pages", "Pages of the KV cache.", kGauge, [](const SchedulerStats& s) { return double(s.pages); }},
    {"tern_kv_pages_used", "Pages that answers in flight or the prefix cache hold.", kGauge,
     [](const SchedulerStats& s) { return double(s.pages - s.pages_free); }},
    {"tern_kv_pages_cached", "Pages that the prefix cache alone holds.", kGauge,
     [](const SchedulerStats& s) { return double(s.pages_cached); }},
    {"tern_state_slots", "Slots of recurrent state.", kGauge, [](const SchedulerStats& s) { return double(s.states); }},
    {"tern_state_slots_used", "Slots that answers in flight or the prefix cache hold.", kGauge,
     [](const SchedulerStats& s) { return double(s.states - s.states_free); }},
    {"tern_prefix_cache_hit_ratio", "Cached tokens by tokens of prompts.", kGauge,
     [](const SchedulerStats& s) { return share(double(s.cached_tokens), double(s.prompt_tokens)); }},
};

ClientMetric metric(MetricType type, double value, std::vector<ClientMetric::Label> labels) {
  ClientMetric out;
  out.label = std::move(labels);
  (type == kCounter ? out.counter.value : out.gauge.value) = value;
  return out;
}

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  prometheus::Histogram& first_token = prometheus::BuildHistogram()
                                           .Name("tern_time_to_first_token_seconds")
                                           .Help("From the arrival of a request to its first token.")
                                           .Register(registry)
                                           .Add({}, kFirstToken);
  prometheus::Histogram& between_tokens = prometheus::BuildHistogram()
                                              .Name("tern_inter_token_seconds")
                                              .Help("Between two tokens of an answer.")
                                              .Register(registry)
                                              .Add({}, kBetweenTokens);
  prometheus::Family<prometheus::Counter>& http =
      prometheus::BuildCounter().Name("tern_http_requests_total").Help("HTTP requests by status.").Register(registry);
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::first_token(double seconds) {
  impl_->first_token.Observe(seconds);
}
void Metrics::between_tokens(double seconds) {
  impl_->between_tokens.Observe(seconds);
}
void Metrics::answered(int status) {
  impl_->http.Add({{"status", std::to_string(status)}}).Increment();
}

std::string Metrics::text(const Registry& models, size_t connections) const {
  std::vector<MetricFamily> families = impl_->registry.Collect();
  std::vector<std::pair<std::string, SchedulerStats>> stats;
  for (const Registry::Entry& entry : models.list())
    if (entry.model) stats.emplace_back(entry.name, entry.model->scheduler->stats());
  for (const Figure& figure : kFigures) {
    MetricFamily family{figure.name, figure.help, figure.type, {}};
    for (const auto& [name, s] : stats)
      family.metric.push_back(metric(figure.type, figure.value(s), {{"model", name}}));
    families.push_back(std::move(family));
  }
  families.push_back({"tern_http_connections", "Open connections.", kGauge, {metric(kGauge, double(connections), {})}});
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

}  // namespace tern::server
