#include "api/metrics.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace quire {
namespace {

using Labels = std::map<std::string, std::string>;
using Buckets = prometheus::Histogram::BucketBoundaries;

// Bucket borders as in vLLM 0.32 (read from its metrics page), so that existing dashboards fit.
Buckets first_token_buckets() {
  return {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
          1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
}
Buckets inter_token_buckets() {
  return {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
}
Buckets latency_buckets() {
  return {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}
Buckets iteration_buckets() {
  Buckets out;
  for (double edge = 1; edge <= 16384; edge *= edge == 1 ? 8 : 2) out.push_back(edge);
  return out;
}
// 1, 2, 5, 10, 20, 50, ... up to the longest possible request.
Buckets token_buckets(std::int64_t max_model_len) {
  Buckets out;
  for (std::int64_t power = 1; power <= max_model_len; power *= 10) {
    for (const std::int64_t digit : {1, 2, 5}) {
      if (digit * power <= max_model_len) out.push_back(static_cast<double>(digit * power));
    }
  }
  return out;
}

// A counter that follows a number kept elsewhere, which only grows.
struct Follower {
  prometheus::Counter* counter = nullptr;
  std::uint64_t seen = 0;
  void follow(std::uint64_t now) {
    if (now > seen) counter->Increment(static_cast<double>(now - seen));
    seen = now;
  }
};

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  std::mutex mutex;  // text(): followers
  std::atomic<bool> started{false};
  Labels labels;

  prometheus::Gauge* running = nullptr;
  prometheus::Gauge* waiting = nullptr;
  prometheus::Gauge* kv_usage = nullptr;
  prometheus::Gauge* kv_usage_old = nullptr;
  Follower preemptions, prompt_tokens, generation_tokens;
  prometheus::Family<prometheus::Counter>* success = nullptr;
  prometheus::Family<prometheus::Counter>* rejections = nullptr;
  prometheus::Histogram* first_token = nullptr;
  prometheus::Histogram* inter_token = nullptr;
  prometheus::Histogram* per_output_token = nullptr;
  prometheus::Histogram* e2e = nullptr;
  prometheus::Histogram* queue = nullptr;
  prometheus::Histogram* prefill = nullptr;
  prometheus::Histogram* decode = nullptr;
  prometheus::Histogram* inference = nullptr;
  prometheus::Histogram* request_prompt_tokens = nullptr;
  prometheus::Histogram* request_generation_tokens = nullptr;
  prometheus::Histogram* max_tokens = nullptr;
  prometheus::Histogram* params_n = nullptr;
  prometheus::Histogram* iteration_tokens = nullptr;
  prometheus::Histogram* step_seconds = nullptr;

  prometheus::Gauge* gauge(const char* name, const char* help) {
    return &prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  prometheus::Counter* counter(const char* name, const char* help) {
    return &prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  prometheus::Histogram* histogram(const char* name, const char* help, const Buckets& buckets) {
    return &prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
  }
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

bool Metrics::started() const {
  return impl_->started.load(std::memory_order_acquire);
}

void Metrics::start(const std::string& model_name, std::int64_t max_model_len, const EngineConfig& config) {
  Impl& m = *impl_;
  m.labels = {{"model_name", model_name}, {"engine", "0"}};
  m.running = m.gauge("vllm:num_requests_running", "Sequences in the running batch.");
  m.waiting = m.gauge("vllm:num_requests_waiting", "Sequences waiting to run.");
  m.kv_usage = m.gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks in use, 0 to 1.");
  m.kv_usage_old = m.gauge("vllm:gpu_cache_usage_perc", "Former name of vllm:kv_cache_usage_perc.");
  m.preemptions.counter = m.counter("vllm:num_preemptions_total", "Sequences preempted.");
  m.prompt_tokens.counter = m.counter("vllm:prompt_tokens_total", "Prompt tokens processed.");
  m.generation_tokens.counter = m.counter("vllm:generation_tokens_total", "Tokens generated.");
  m.success = &prometheus::BuildCounter()
                   .Name("vllm:request_success_total")
                   .Help("Choices that ended, by how.")
                   .Register(m.registry);
  m.rejections = &prometheus::BuildCounter()
                      .Name("vllm:admission_rejections_total")
                      .Help("Requests refused at the door.")
                      .Register(m.registry);
  // Present from the start, so that rates have a zero to begin at.
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    Labels labels = m.labels;
    labels["finished_reason"] = reason;
    m.success->Add(labels);
  }
  m.first_token =
      m.histogram("vllm:time_to_first_token_seconds", "Submission to first token.", first_token_buckets());
  m.inter_token =
      m.histogram("vllm:inter_token_latency_seconds", "Between tokens of a choice.", inter_token_buckets());
  m.per_output_token =
      m.histogram("vllm:request_time_per_output_token_seconds",
                  "Mean time per token after the first, one value per choice.", inter_token_buckets());
  m.e2e = m.histogram("vllm:e2e_request_latency_seconds", "Submission to last token.", latency_buckets());
  m.queue =
      m.histogram("vllm:request_queue_time_seconds", "Submission to first scheduled.", latency_buckets());
  m.prefill =
      m.histogram("vllm:request_prefill_time_seconds", "First scheduled to first token.", latency_buckets());
  m.decode = m.histogram("vllm:request_decode_time_seconds", "First token to last token.", latency_buckets());
  m.inference =
      m.histogram("vllm:request_inference_time_seconds", "First scheduled to last token.", latency_buckets());
  const Buckets tokens = token_buckets(max_model_len);
  m.request_prompt_tokens = m.histogram("vllm:request_prompt_tokens", "Prompt tokens per choice.", tokens);
  m.request_generation_tokens =
      m.histogram("vllm:request_generation_tokens", "Generated tokens per choice.", tokens);
  m.max_tokens = m.histogram("vllm:request_params_max_tokens", "The request's max_tokens.", tokens);
  m.params_n = m.histogram("vllm:request_params_n", "The request's n.", {1, 2, 5, 10, 20});
  m.iteration_tokens =
      m.histogram("vllm:iteration_tokens_total", "Tokens computed per engine step.", iteration_buckets());
  m.step_seconds = m.histogram("quire:step_seconds", "Duration of an engine step.", inter_token_buckets());
  Labels cache = m.labels;
  cache["block_size"] = std::to_string(config.block_size);
  cache["num_gpu_blocks"] = std::to_string(config.num_blocks);
  cache["cache_dtype"] = std::string(dtype_name(config.kv_dtype));
  prometheus::BuildGauge()
      .Name("vllm:cache_config_info")
      .Help("The KV cache's configuration, as labels.")
      .Register(m.registry)
      .Add(cache)
      .Set(1);
  m.started.store(true, std::memory_order_release);
}

void Metrics::observe_step(const StepReport& step) {
  if (!started()) return;
  impl_->iteration_tokens->Observe(static_cast<double>(step.num_tokens));
  impl_->step_seconds->Observe(step.seconds);
}

void Metrics::observe_first_token(double seconds) {
  if (started()) impl_->first_token->Observe(seconds);
}

void Metrics::observe_inter_token(double seconds) {
  if (started()) impl_->inter_token->Observe(seconds);
}

void Metrics::observe_request(const RequestSummary& request) {
  if (!started()) return;
  Impl& m = *impl_;
  count_finished(request.finish_reason);
  m.e2e->Observe(request.e2e_seconds);
  m.queue->Observe(request.queue_seconds);
  m.prefill->Observe(request.prefill_seconds);
  m.decode->Observe(request.decode_seconds);
  m.inference->Observe(request.prefill_seconds + request.decode_seconds);
  m.request_prompt_tokens->Observe(static_cast<double>(request.prompt_tokens));
  m.request_generation_tokens->Observe(static_cast<double>(request.generation_tokens));
  m.max_tokens->Observe(static_cast<double>(request.max_tokens));
  m.params_n->Observe(static_cast<double>(request.n));
  if (request.generation_tokens > 1) {
    m.per_output_token->Observe(request.decode_seconds / static_cast<double>(request.generation_tokens - 1));
  }
}

void Metrics::count_finished(std::string_view reason) {
  if (!started()) return;
  Labels labels = impl_->labels;
  labels["finished_reason"] = std::string(reason);
  impl_->success->Add(labels).Increment();
}

void Metrics::count_rejection(std::string_view reason) {
  if (!started()) return;
  Labels labels = impl_->labels;
  labels["reason"] = std::string(reason);
  impl_->rejections->Add(labels).Increment();
}

std::string Metrics::text(const EngineStats* stats) {
  if (!started()) return {};
  Impl& m = *impl_;
  const std::lock_guard<std::mutex> lock(m.mutex);
  if (stats != nullptr) {
    m.running->Set(static_cast<double>(stats->num_running));
    m.waiting->Set(static_cast<double>(stats->num_waiting));
    const double used = static_cast<double>(stats->num_blocks - stats->num_free_blocks);
    const double usage = stats->num_blocks == 0 ? 0 : used / static_cast<double>(stats->num_blocks);
    m.kv_usage->Set(usage);
    m.kv_usage_old->Set(usage);
    m.preemptions.follow(stats->num_preemptions);
    m.prompt_tokens.follow(stats->prompt_tokens);
    m.generation_tokens.follow(stats->generation_tokens);
  }
  return prometheus::TextSerializer().Serialize(m.registry.Collect());
}

}  // namespace quire
