#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "base/check.h"
#include "base/log.h"
#include "engine/batch_builder.h"
#include "engine/commit.h"
#include "engine/inbox.h"
#include "engine/kv_pool.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

// After drain()'s deadline the rest is aborted at the next step border; a step longer than this is not waited
// for.
constexpr std::chrono::seconds kAbortGrace{10};

// The limits that hold, each of the configured ones that cannot said aloud.
EngineConfig effective_config(EngineConfig config, const ModelConfig& model) {
  QUIRE_CHECK_GT(config.num_blocks, 0);
  QUIRE_CHECK_GT(config.block_size, 0);
  QUIRE_CHECK_GT(config.max_num_seqs, 0);
  QUIRE_CHECK_GT(config.max_num_batched_tokens, 0);
  if (config.max_model_len <= 0) config.max_model_len = model.context_length;
  const std::int64_t num_slots = config.num_blocks * config.block_size;
  if (config.max_model_len > num_slots) {
    log_warning("max_model_len is {} instead of {} tokens: the KV cache holds {} blocks of {}", num_slots,
                config.max_model_len, config.num_blocks, config.block_size);
    config.max_model_len = num_slots;
  }
  if (config.max_num_seqs > config.max_num_batched_tokens) {
    log_warning("max_num_seqs is {} instead of {}: each needs one of max_num_batched_tokens = {}",
                config.max_num_batched_tokens, config.max_num_seqs, config.max_num_batched_tokens);
    config.max_num_seqs = config.max_num_batched_tokens;
  }
  if (!config.seed_given) {
    std::random_device entropy;
    config.seed = std::uint64_t{entropy()} << 32 | entropy();
  }
  return config;
}

InboxConfig inbox_config(const EngineConfig& config, const ModelConfig& model) {
  return {model.vocab_size,  config.max_model_len, config.max_num_seqs, config.max_num_queued_reqs,
          config.num_blocks, config.block_size,    config.seed};
}

SchedulerConfig scheduler_config(const EngineConfig& config) {
  SchedulerConfig scheduler;
  scheduler.max_num_seqs = config.max_num_seqs;
  scheduler.max_num_batched_tokens = config.max_num_batched_tokens;
  scheduler.max_logit_rows = std::max(kMaxLogitRows, config.max_num_seqs);
  return scheduler;
}

SampledTokens failed(const StepPlan& plan, const char* what) {
  log_error("a step of {} sequences failed: {}", plan.sequences.size(), what);
  SampledSequence each;
  each.error = make_error(ErrorCode::kInternal, fmt::format("the model failed: {}", what));
  return SampledTokens(plan.sequences.size(), each);
}

// Sums over all steps.
struct StepTimes {
  std::chrono::duration<double> step{0};
  std::chrono::duration<double> forward{0};
  std::chrono::duration<double> sample{0};
};

}  // namespace

struct Engine::Impl {
  Impl(Model& model_in, ThreadPool& threads_in, const EngineConfig& config_in,
       std::function<void(const StepReport&)> on_step_in)
      : model(model_in),
        threads(threads_in),
        config(effective_config(config_in, model_in.config())),
        on_step(std::move(on_step_in)),
        inbox(inbox_config(config, model_in.config())),
        pool(config.num_blocks, config.block_size),
        scheduler(scheduler_config(config), pool),
        batch_builder(config.block_size),
        sampler(threads_in),
        committer(scheduler) {
    publish();
  }

  // The map of the engine: one step.
  void step() {
    const SteadyTime start = Clock::now();
    const StepTimes before = times;
    const StepPlan plan = scheduler.schedule(start);
    SampledTokens sampled = compute(plan);
    committer.commit(plan, std::move(sampled), Clock::now());
    const SteadyTime committed = Clock::now();
    times.step += committed - start;
    publish(&plan);
    inbox.count_ended(committer.deliver());
    times.step += Clock::now() - committed;
    report(plan, before);
  }

  // Batch, forward pass, tokens. A failure is that of the sequences in the plan; the others go on.
  SampledTokens compute(const StepPlan& plan) {
    try {
      for (const BlockCopy& copy : plan.copies) model.copy_block(copy.from, copy.to);
      const SteadyTime begun = Clock::now();
      const Batch& batch = batch_builder.build(plan);
      const Logits logits = model.forward(batch);
      const SteadyTime computed = Clock::now();
      SampledTokens sampled = sampler.sample(plan, logits);
      times.forward += computed - begun;
      times.sample += Clock::now() - computed;
      return sampled;
    } catch (const std::exception& exception) {
      return failed(plan, exception.what());
    } catch (...) {
      return failed(plan, "unknown exception");
    }
  }

  // New sequences come in, those no longer wanted go.
  void admit() {
    for (auto& sequence : inbox.take(scheduler.empty())) scheduler.add(std::move(sequence));
    const bool aborts_all = aborting.load();
    committer.end_unless([&](const Sequence& sequence) { return !aborts_all && !sequence.is_cancelled(); },
                         FinishReason::kAbort, std::nullopt, Clock::now());
    publish();
    inbox.count_ended(committer.deliver());
  }

  void run() {
    threads.pin_caller();
    try {
      while (!stopping.load()) {
        admit();
        if (!scheduler.empty()) step();
      }
    } catch (const std::exception& exception) {
      fail(exception.what());
    } catch (...) {
      fail("unknown exception");
    }
    end_all();
  }

  // An error of the engine itself: its state is not to be trusted, so it stops and says so to all.
  void fail(const char* what) {
    log_error("the engine has stopped: {}", what);
    failure = make_error(ErrorCode::kInternal, fmt::format("the engine has stopped: {}", what));
    inbox.close(make_error(ErrorCode::kUnavailable, failure->message));
  }

  // What is left when the thread ends, or was never started.
  void end_all() {
    inbox.close(make_error(ErrorCode::kUnavailable, "the engine has stopped"));
    for (auto& sequence : inbox.take(false)) scheduler.add(std::move(sequence));
    committer.end_unless([](const Sequence&) { return false; },
                         failure ? FinishReason::kError : FinishReason::kAbort, failure, Clock::now());
    publish();
    inbox.count_ended(committer.deliver());
  }

  // Before events leave: whoever has seen one finds at least that state in stats(). plan: of a step just
  // done.
  void publish(const StepPlan* plan = nullptr) {
    const auto num_running = static_cast<std::int64_t>(scheduler.running().size());
    const auto num_waiting = static_cast<std::int64_t>(scheduler.waiting().size());
    inbox.report(num_running, num_waiting);
    const CommitCounts& counts = committer.counts();
    std::lock_guard<std::mutex> lock(stats_mutex);
    const bool was_idle = snapshot.num_running + snapshot.num_waiting == 0;
    if (plan != nullptr || was_idle) progress_at = Clock::now();
    snapshot.num_running = num_running;
    snapshot.num_waiting = num_waiting;
    snapshot.num_blocks = pool.num_blocks();
    snapshot.num_free_blocks = pool.num_free();
    snapshot.num_steps += plan != nullptr ? 1 : 0;
    snapshot.num_preemptions = scheduler.num_preemptions();
    snapshot.prompt_tokens = counts.prompt_tokens;
    snapshot.generation_tokens = counts.generation_tokens;
    snapshot.finished_stop = counts.finished_stop;
    snapshot.finished_length = counts.finished_length;
    snapshot.finished_abort = counts.finished_abort;
    snapshot.finished_error = counts.finished_error;
    snapshot.step_seconds = times.step.count();
    snapshot.forward_seconds = times.forward.count();
    snapshot.sample_seconds = times.sample.count();
    snapshot.failed = failure.has_value();
  }

  void report(const StepPlan& plan, const StepTimes& before) const {
    if (!on_step) return;
    on_step({plan.num_tokens, static_cast<std::int64_t>(plan.sequences.size()),
             (times.step - before.step).count(), (times.forward - before.forward).count(),
             (times.sample - before.sample).count()});
  }

  Model& model;
  ThreadPool& threads;
  const EngineConfig config;
  const std::function<void(const StepReport&)> on_step;
  Inbox inbox;

  // The engine thread's own.
  KvPool pool;
  Scheduler scheduler;
  BatchBuilder batch_builder;
  Sampler sampler;
  Committer committer;
  StepTimes times;
  std::optional<Error> failure;

  std::atomic<bool> stopping{false};
  std::atomic<bool> aborting{false};
  mutable std::mutex stats_mutex;
  EngineStats snapshot;
  SteadyTime progress_at;
  std::thread thread;
};

Engine::Engine(Model& model, ThreadPool& pool, const EngineConfig& config,
               std::function<void(const StepReport&)> on_step)
    : impl_(std::make_unique<Impl>(model, pool, config, std::move(on_step))) {}

Engine::~Engine() {
  impl_->inbox.close(make_error(ErrorCode::kUnavailable, "the server is shutting down"));
  impl_->stopping.store(true);
  impl_->inbox.wake();
  if (impl_->thread.joinable()) {
    impl_->thread.join();
  } else {
    impl_->end_all();
  }
}

void Engine::start() {
  QUIRE_CHECK(!impl_->thread.joinable()) << "started twice";
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

Status Engine::submit(TokenRequest request) {
  std::vector<TokenRequest> requests;
  requests.push_back(std::move(request));
  return submit_all(std::move(requests));
}

Status Engine::submit_all(std::vector<TokenRequest> requests) {
  return impl_->inbox.submit(std::move(requests));
}

EngineStats Engine::stats() const {
  const Inbox::Load load = impl_->inbox.load();
  std::lock_guard<std::mutex> lock(impl_->stats_mutex);
  EngineStats stats = impl_->snapshot;
  const bool engine_works = stats.num_running + stats.num_waiting > 0;
  if (engine_works || load.queued_since) {
    const SteadyTime since =
        engine_works ? impl_->progress_at : std::max(impl_->progress_at, *load.queued_since);
    stats.seconds_since_progress = std::chrono::duration<double>(Clock::now() - since).count();
  }
  stats.num_waiting += load.num_queued;
  return stats;
}

bool Engine::drain(std::chrono::milliseconds deadline) {
  Inbox& inbox = impl_->inbox;
  inbox.close(make_error(ErrorCode::kUnavailable, "the server is shutting down"));
  if (inbox.wait_until_empty(deadline)) return true;
  if (!impl_->thread.joinable()) {
    impl_->end_all();
    return false;
  }
  impl_->aborting.store(true);
  inbox.wake();
  inbox.wait_until_empty(kAbortGrace);
  return false;
}

const EngineConfig& Engine::config() const {
  return impl_->config;
}

const Model& Engine::model() const {
  return impl_->model;
}

}  // namespace quire
