#include "engine/inbox.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/core.h>

#include "base/check.h"
#include "engine/philox.h"

namespace quire {
namespace {

Status check_range(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return {};  // false for NaN
  return invalid(fmt::format("{} must lie in [{}, {}], not {}", name, low, high, value), name);
}

Status check_ids(const char* name, const std::vector<std::int32_t>& ids, std::int64_t vocab_size) {
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    return invalid(
        fmt::format("{} holds token id {}, but the vocabulary is 0 to {}", name, id, vocab_size - 1), name);
  }
  return {};
}

Status check_params(const SamplingParams& params, std::int64_t vocab_size) {
  constexpr double kLargest = 1e308;
  QUIRE_RETURN_IF_ERROR(check_range("temperature", params.temperature, 0, kLargest));
  QUIRE_RETURN_IF_ERROR(check_range("top_p", params.top_p, 0, 1));
  QUIRE_RETURN_IF_ERROR(check_range("min_p", params.min_p, 0, 1));
  QUIRE_RETURN_IF_ERROR(check_range("presence_penalty", params.presence_penalty, -2, 2));
  QUIRE_RETURN_IF_ERROR(check_range("frequency_penalty", params.frequency_penalty, -2, 2));
  QUIRE_RETURN_IF_ERROR(check_range("repetition_penalty", params.repetition_penalty, 1e-6, 1e6));
  if (params.max_tokens < 0) return invalid("max_tokens must not be negative", "max_tokens");
  if (params.min_tokens < 0) return invalid("min_tokens must not be negative", "min_tokens");
  for (const auto& [id, bias] : params.logit_bias) {
    QUIRE_RETURN_IF_ERROR(check_ids("logit_bias", {id}, vocab_size));
    QUIRE_RETURN_IF_ERROR(check_range("logit_bias", bias, -100, 100));
  }
  QUIRE_RETURN_IF_ERROR(check_ids("allowed_token_ids", params.allowed_token_ids, vocab_size));
  QUIRE_RETURN_IF_ERROR(check_ids("stop_token_ids", params.stop_token_ids, vocab_size));
  for (const std::vector<std::int32_t>& word : params.bad_words) {
    if (word.empty()) return invalid("bad_words holds an empty word", "bad_words");
    QUIRE_RETURN_IF_ERROR(check_ids("bad_words", word, vocab_size));
  }
  return {};
}

}  // namespace

Status check_request(const TokenRequest& request, const InboxConfig& config) {
  QUIRE_CHECK(request.stream != nullptr);
  QUIRE_CHECK_GE(request.choice, 0);
  QUIRE_CHECK_LT(request.choice, request.stream->num_choices());
  if (request.prompt.empty()) return invalid("the prompt is empty: at least one token is needed", "prompt");
  QUIRE_RETURN_IF_ERROR(check_ids("prompt", request.prompt, config.vocab_size));
  QUIRE_RETURN_IF_ERROR(check_params(request.params, config.vocab_size));
  if (request.eviction.evicts()) {  // then no length is too long
    return check_eviction(request.eviction, config.num_blocks, config.block_size, config.max_model_len);
  }
  // With max_tokens = 0 nothing follows the prompt.
  const auto num_prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t num_next = request.params.max_tokens > 0 ? 1 : 0;
  if (num_prompt + num_next > config.max_model_len) {
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("the prompt has {} tokens, but the context is {} tokens, prompt and output "
                                  "together; shorten the prompt",
                                  num_prompt, config.max_model_len),
                      "prompt");
  }
  return {};
}

std::unique_ptr<Sequence> make_sequence(TokenRequest request, const InboxConfig& config,
                                        std::uint64_t arrival, SteadyTime now) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = std::move(request.id);
  sequence->params = std::move(request.params);
  sequence->eos_ids = std::move(request.eos_ids);
  sequence->stream = std::move(request.stream);
  sequence->choice = request.choice;
  sequence->priority = request.priority;
  sequence->eviction = request.eviction;
  sequence->arrival = arrival;
  sequence->seed = sequence->params.seed ? *sequence->params.seed : random_bits(config.seed, arrival);
  sequence->tokens = std::move(request.prompt);
  sequence->num_prompt = sequence->num_known();
  // Positions travel as int32 in a Batch.
  const std::int64_t longest =
      sequence->eviction.evicts() ? std::numeric_limits<std::int32_t>::max() : config.max_model_len;
  // Written so that a max_tokens of 2^63 - 1 does not overflow.
  sequence->max_known =
      sequence->num_prompt + std::min(sequence->params.max_tokens, longest - sequence->num_prompt);
  sequence->submitted_at = now;
  if (sequence->params.repetition_penalty != 1.0) {
    for (const std::int32_t token : sequence->tokens) sequence->output_counts.emplace(token, 0);
  }
  if (sequence->wants_prompt_logprobs())
    sequence->prompt_logprobs.emplace_back();  // of the first token: none
  return sequence;
}

Status Inbox::submit(std::vector<TokenRequest> requests) {
  if (requests.empty()) return {};
  for (const TokenRequest& request : requests) QUIRE_RETURN_IF_ERROR(check_request(request, config_));
  const SteadyTime now = std::chrono::steady_clock::now();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return *closed_;
    if (config_.max_num_queued_reqs > 0) {
      const std::int64_t num_waiting = num_waiting_ + static_cast<std::int64_t>(queue_.size());
      // While nobody waits in the scheduler, those who come find the free places.
      const std::int64_t num_places = num_waiting_ == 0 ? config_.max_num_seqs - num_running_ : 0;
      if (num_waiting + static_cast<std::int64_t>(requests.size()) >
          config_.max_num_queued_reqs + num_places) {
        return make_error(ErrorCode::kOverloaded,
                          fmt::format("the server is busy: {} requests run and {} wait, and at most {} may "
                                      "wait (--max-num-queued-reqs); try again later",
                                      num_running_, num_waiting, config_.max_num_queued_reqs));
      }
    }
    for (TokenRequest& request : requests) {
      queue_.push_back(make_sequence(std::move(request), config_, num_submitted_++, now));
    }
  }
  arrived_.notify_one();
  return {};
}

void Inbox::close(Error reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_) closed_ = std::move(reason);
}

void Inbox::wake() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    woken_ = true;
  }
  arrived_.notify_one();
}

bool Inbox::wait_until_empty(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  timeout = std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24));
  return emptied_.wait_for(lock, timeout, [this] { return num_ended_ == num_submitted_; });
}

Inbox::Load Inbox::load() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Load load;
  load.num_queued = static_cast<std::int64_t>(queue_.size());
  if (!queue_.empty()) load.queued_since = queue_.front()->submitted_at;
  return load;
}

std::vector<std::unique_ptr<Sequence>> Inbox::take(bool may_sleep) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (may_sleep) arrived_.wait(lock, [this] { return woken_ || !queue_.empty(); });
  woken_ = false;
  num_waiting_ += static_cast<std::int64_t>(queue_.size());
  return std::exchange(queue_, {});
}

void Inbox::report(std::int64_t num_running, std::int64_t num_waiting) {
  std::lock_guard<std::mutex> lock(mutex_);
  num_running_ = num_running;
  num_waiting_ = num_waiting;
}

void Inbox::count_ended(std::int64_t num_sequences) {
  if (num_sequences == 0) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    num_ended_ += static_cast<std::uint64_t>(num_sequences);
  }
  emptied_.notify_all();
}

}  // namespace quire
