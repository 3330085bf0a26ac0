// Purpose: runs requests: admit -> schedule -> build batch -> forward -> sample -> commit, one step after
// another. In: TokenRequest. Out: TokenEvents in each request's stream. Thread: submit(), stats() and drain()
// from any; all scheduling state belongs to the one engine thread that start() makes. Out of scope: text,
// protocols (api/); arithmetic (model/, backend/).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/request.h"
#include "model/model.h"

namespace quire {

struct EngineConfig {
  std::int64_t max_model_len = 0;   // tokens per sequence, prompt and output; <= the model's context
  std::int64_t max_num_seqs = 128;  // sequences running at once
  std::int64_t max_num_batched_tokens = 2048;  // tokens per step
  std::int64_t block_size = 16;
  std::int64_t num_blocks = 0;
  std::int64_t max_num_queued_reqs = 0;  // waiting sequences; 0 = no bound
  std::uint64_t seed = 0;                // of requests without their own: mixed with a counter
  bool seed_given = false;               // false = seeded from the system's entropy
  DType kv_dtype = DType::kF32;
};

// A consistent snapshot. Counters only grow.
struct EngineStats {
  std::int64_t num_running = 0;
  std::int64_t num_waiting = 0;
  std::int64_t num_blocks = 0;
  std::int64_t num_free_blocks = 0;
  std::uint64_t num_steps = 0;
  std::uint64_t num_preemptions = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t generation_tokens = 0;
  std::uint64_t finished_stop = 0;
  std::uint64_t finished_length = 0;
  std::uint64_t finished_abort = 0;
  std::uint64_t finished_error = 0;
  double step_seconds = 0;            // in steps; the rest of a step is planning, commit and delivery
  double forward_seconds = 0;         // of that: batch and forward pass
  double sample_seconds = 0;          // of that: logits to tokens
  double seconds_since_progress = 0;  // work waits and no step has ended for this long; 0 when idle
  bool failed = false;                // the engine thread has stopped after an internal error
};

// What one step did; called on the engine thread after each step (metrics). Must be quick.
struct StepReport {
  std::int64_t num_tokens = 0;
  std::int64_t num_seqs = 0;
  double seconds = 0;
  double forward_seconds = 0;  // of that: batch and forward pass
  double sample_seconds = 0;   // of that: logits to tokens
};

class Engine {
 public:
  // model (with its KV memory allocated) and pool must outlive the engine. pool: for sampling.
  Engine(Model& model, ThreadPool& pool, const EngineConfig& config,
         std::function<void(const StepReport&)> on_step = {});
  ~Engine();  // aborts what still runs

  void start();
  // Refuses at once what can never run (longer than max_model_len or than the whole pool;
  // kInvalid/kTooLarge), what exceeds the queue (kOverloaded), and everything after drain() began
  // (kUnavailable). After success the stream gets exactly one event with a finish reason.
  Status submit(TokenRequest request);
  // All requests of one stream or none.
  Status submit_all(std::vector<TokenRequest> requests);
  EngineStats stats() const;
  // No new requests; waits until all have ended or the deadline passed, then aborts the rest. True if none
  // was aborted.
  bool drain(std::chrono::milliseconds deadline);
  // What holds: max_model_len and max_num_seqs lowered to what the KV cache and the token budget allow, the
  // seed filled in.
  const EngineConfig& config() const;
  const Model& model() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
