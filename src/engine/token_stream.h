// Purpose: the outlet a request carries down the river: the engine writes TokenEvents, its connection reads
// them. Owner: shared by both; one writer (engine thread), one reader (connection thread). Upstream goes one
// signal only: a cancel bit per choice.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace quire {

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0;
  std::int32_t rank = 1;  // 1 = most likely
};

// The chosen token first, then the most likely ones in descending order (the chosen one may appear again).
struct PositionLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};

enum class FinishReason { kNone, kStop, kLength, kAbort, kError };

// Seconds on the steady clock since the request was submitted, plus counters; in the last event of a choice.
struct RequestTimes {
  double queued = 0;     // submit -> first scheduled
  double prefill = 0;    // first scheduled -> first token
  double decode = 0;     // first token -> end
  double preempted = 0;  // of these, waiting after a preemption
  std::int32_t num_preemptions = 0;
  std::int32_t num_cached_tokens = 0;
};

struct TokenEvent {
  std::int32_t choice = 0;            // which TokenRequest of this stream
  std::optional<std::int32_t> token;  // absent in a final event that brings none
  std::optional<PositionLogprobs> logprobs;
  // In the first event, if prompt logprobs were asked: one entry per prompt token, the first one empty.
  std::vector<std::optional<PositionLogprobs>> prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
  std::optional<std::int32_t> stop_token;  // the id that stopped it, if one of stop_token_ids or an eos did
  std::optional<Error> error;              // with kError
  RequestTimes times;                      // with finish
};

class TokenStream {
 public:
  explicit TokenStream(std::int32_t num_choices = 1);

  // Reader. Waits up to timeout for an event; nullopt on timeout.
  std::optional<TokenEvent> next(std::chrono::milliseconds timeout);
  // Reader: this choice (or all) is no longer wanted; its blocks are freed at the next step.
  void cancel(std::int32_t choice);
  void cancel_all();

  // Writer.
  void push(TokenEvent event);
  bool cancelled(std::int32_t choice) const;

  std::int32_t num_choices() const { return num_choices_; }

 private:
  const std::int32_t num_choices_;
  std::unique_ptr<std::atomic<bool>[]> cancelled_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<TokenEvent> events_;
};

}  // namespace quire
