// Purpose: what Prometheus reads, under vLLM's names (labels model_name and engine) so that dashboards and
// autoscalers made for vLLM work. In: observations of connections and of the engine's steps. Out: the text
// format. Thread: any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace quire {

// One choice that ended.
struct RequestSummary {
  std::string finish_reason;
  std::int64_t prompt_tokens = 0;
  std::int64_t generation_tokens = 0;
  std::int64_t max_tokens = 0;
  std::int64_t n = 1;
  double e2e_seconds = 0;
  double queue_seconds = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  std::int64_t num_preemptions = 0;
};

class Metrics {
 public:
  Metrics();
  ~Metrics();
  // The labels' values are known when the model is: until then nothing is served but an empty page.
  void start(const std::string& model_name, std::int64_t max_model_len, const EngineConfig& config);
  bool started() const;

  void observe_step(const StepReport& step);
  void observe_first_token(double seconds);
  void observe_inter_token(double seconds);
  // A choice that ended well, or by its length.
  void observe_request(const RequestSummary& request);
  // A choice that ended otherwise: "abort", "error".
  void count_finished(std::string_view reason);
  void count_rejection(std::string_view reason);

  // The page; takes the gauges and the engine's own counters from stats.
  std::string text(const EngineStats* stats);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
