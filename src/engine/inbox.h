// Purpose: the door between the connections' threads and the engine thread: checks requests, refuses what can
// never run or would wait too long, makes Sequences of the rest and hands them over. In: TokenRequest. Out:
// Sequence. Thread: submit(), close(), wait_until_empty(), load() from any; take(), report() and
// count_ended() on the engine thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"
#include "engine/request.h"
#include "engine/sequence.h"

namespace quire {

struct InboxConfig {
  std::int64_t vocab_size = 0;
  std::int64_t max_model_len = 0;        // prompt and output of one sequence
  std::int64_t max_num_seqs = 0;         // sequences that may run at once
  std::int64_t max_num_queued_reqs = 0;  // sequences that may wait beyond those; 0 = no bound
  std::int64_t num_blocks = 0;           // of the KV cache
  std::int64_t block_size = 0;
  std::uint64_t seed = 0;  // mixed with a counter for requests without their own
};

// What is wrong with a request whatever the load, if anything.
Status check_request(const TokenRequest& request, const InboxConfig& config);
std::unique_ptr<Sequence> make_sequence(TokenRequest request, const InboxConfig& config,
                                        std::uint64_t arrival, SteadyTime now);

class Inbox {
 public:
  explicit Inbox(const InboxConfig& config) : config_(config) {}

  // All or none.
  Status submit(std::vector<TokenRequest> requests);
  // From now on submit() fails with this error. The first call decides.
  void close(Error reason);
  // Ends the engine's sleep in take().
  void wake();
  // Waits until all that was submitted has ended; false if the time was over first.
  bool wait_until_empty(std::chrono::milliseconds timeout);
  struct Load {
    std::int64_t num_queued = 0;             // submitted and not taken yet
    std::optional<SteadyTime> queued_since;  // when the oldest of them came
  };
  Load load() const;

  // Engine: what has come since the last call, in order. may_sleep: if nothing has, waits until something
  // does or wake() is called.
  std::vector<std::unique_ptr<Sequence>> take(bool may_sleep);
  // Engine: how many run and wait after a step, for the bound on waiting ones.
  void report(std::int64_t num_running, std::int64_t num_waiting);
  void count_ended(std::int64_t num_sequences);

 private:
  const InboxConfig config_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable emptied_;
  std::vector<std::unique_ptr<Sequence>> queue_;
  std::optional<Error> closed_;
  bool woken_ = false;
  std::uint64_t num_submitted_ = 0;
  std::uint64_t num_ended_ = 0;
  std::int64_t num_running_ = 0;
  std::int64_t num_waiting_ = 0;  // taken and not running
};

}  // namespace quire
