// Figures for Prometheus: what the schedulers count, and histograms of what clients wait for.
#pragma once
#include <memory>
#include <string>

#include "server/registry.h"

namespace tern::server {

class Metrics {
 public:
  Metrics();
  ~Metrics();

  // From any thread.
  void first_token(double seconds);  // from the arrival of a request to its first token
  void between_tokens(double seconds);
  void answered(int status);  // one HTTP request

  /// The text format of Prometheus.
  std::string text(const Registry& models, size_t connections) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tern::server
