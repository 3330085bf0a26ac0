#include "engine/commit.h"

#include <algorithm>

#include "base/check.h"
#include "engine/logit_adjust.h"

namespace quire {
namespace {

double seconds(std::chrono::duration<double> duration) {
  return duration.count();
}

RequestTimes times_of(const Sequence& sequence, SteadyTime now) {
  RequestTimes times;
  const SteadyTime scheduled = sequence.scheduled_at.value_or(now);
  const SteadyTime first_token = sequence.first_token_at.value_or(now);
  times.queued = seconds(scheduled - sequence.submitted_at);
  times.prefill = seconds(first_token - scheduled);
  times.decode = seconds(now - first_token);
  times.preempted = seconds(sequence.preempted_for);
  if (sequence.preempted_at) times.preempted += seconds(now - *sequence.preempted_at);
  times.num_preemptions = sequence.num_preemptions;
  return times;
}

// Why the sequence ends with the token it has just got, or kNone.
FinishReason finish_reason(const Sequence& sequence, bool stops) {
  if (stops) return FinishReason::kStop;
  return sequence.num_known() >= sequence.max_known ? FinishReason::kLength : FinishReason::kNone;
}

}  // namespace

void Committer::commit(const StepPlan& plan, SampledTokens sampled, SteadyTime now) {
  QUIRE_CHECK_EQ(sampled.size(), plan.sequences.size());
  for (std::size_t i = 0; i < sampled.size(); ++i) commit_one(plan.sequences[i], std::move(sampled[i]), now);
}

void Committer::commit_one(const PlannedSequence& planned, SampledSequence sampled, SteadyTime now) {
  Sequence& sequence = *planned.sequence;
  if (sampled.error) {
    end(sequence, FinishReason::kError, std::move(sampled.error), now);
    return;
  }
  sequence.num_computed = planned.first + planned.count;
  const std::int64_t num_prompt_done = std::min(sequence.num_computed, sequence.num_prompt);
  if (num_prompt_done > sequence.num_prompt_counted) {  // not so while it recomputes
    counts_.prompt_tokens += static_cast<std::uint64_t>(num_prompt_done - sequence.num_prompt_counted);
    sequence.num_prompt_counted = num_prompt_done;
  }
  sequence.num_scored += planned.num_scored;
  for (PositionLogprobs& logprobs : sampled.prompt_logprobs) {
    sequence.prompt_logprobs.emplace_back(std::move(logprobs));
  }
  if (!planned.samples) {
    // All computed and no token wanted: the prompt was to be scored only.
    if (sequence.num_computed == sequence.num_known()) {
      TokenEvent event;
      event.prompt_logprobs = std::move(sequence.prompt_logprobs);
      finish(sequence, FinishReason::kLength, std::move(event), now);
    }
    return;
  }

  QUIRE_CHECK(sampled.token.has_value());
  const std::int32_t token = *sampled.token;
  TokenEvent event;
  event.token = token;
  event.logprobs = std::move(sampled.logprobs);
  if (!sequence.first_token_at) {
    sequence.first_token_at = now;
    event.prompt_logprobs = std::move(sequence.prompt_logprobs);
  }
  sequence.tokens.push_back(token);
  if (sequence.wants_penalties()) ++sequence.output_counts[token];
  ++counts_.generation_tokens;

  const bool stops = is_stop_token(sequence, token);
  if (stops) event.stop_token = token;
  const FinishReason reason = finish_reason(sequence, stops);
  if (reason == FinishReason::kNone) {
    event.choice = sequence.choice;
    outbox_.emplace_back(sequence.stream, std::move(event));
  } else {
    finish(sequence, reason, std::move(event), now);
  }
}

void Committer::end(const Sequence& sequence, FinishReason reason, std::optional<Error> error,
                    SteadyTime now) {
  TokenEvent event;
  event.error = std::move(error);
  finish(sequence, reason, std::move(event), now);
}

void Committer::finish(const Sequence& sequence, FinishReason reason, TokenEvent event, SteadyTime now) {
  event.choice = sequence.choice;
  event.finish = reason;
  event.times = times_of(sequence, now);
  count_finish(reason);
  outbox_.emplace_back(sequence.stream, std::move(event));
  scheduler_.remove(sequence);
}

void Committer::count_finish(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      ++counts_.finished_stop;
      return;
    case FinishReason::kLength:
      ++counts_.finished_length;
      return;
    case FinishReason::kAbort:
      ++counts_.finished_abort;
      return;
    case FinishReason::kError:
      ++counts_.finished_error;
      return;
    case FinishReason::kNone:
      break;
  }
  QUIRE_CHECK(false) << "a sequence ended without a reason";
}

std::int64_t Committer::deliver() {
  std::int64_t num_last = 0;
  for (auto& [stream, event] : outbox_) {
    if (event.finish != FinishReason::kNone) ++num_last;
    stream->push(std::move(event));
  }
  outbox_.clear();
  return num_last;
}

}  // namespace quire
