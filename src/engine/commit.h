// Purpose: makes a step's results known: tokens join their sequences, finished sequences leave and free their
// blocks, TokenEvents go to the streams. In: StepPlan, SampledTokens. Out: TokenEvents, counts. Thread:
// engine thread. Events are kept until deliver(), so that whoever sees a last event also finds its blocks
// free.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/step_plan.h"
#include "engine/token_stream.h"

namespace quire {

// Only grow.
struct CommitCounts {
  std::uint64_t prompt_tokens = 0;      // computed for the first time
  std::uint64_t generation_tokens = 0;  // given to streams
  std::uint64_t finished_stop = 0;
  std::uint64_t finished_length = 0;
  std::uint64_t finished_abort = 0;
  std::uint64_t finished_error = 0;
};

class Committer {
 public:
  explicit Committer(Scheduler& scheduler) : scheduler_(scheduler) {}

  void commit(const StepPlan& plan, SampledTokens sampled, SteadyTime now);
  // Ends a sequence in any state without a further token.
  void end(const Sequence& sequence, FinishReason reason, std::optional<Error> error, SteadyTime now);
  // Ends every sequence, running or waiting, for which wanted() is false.
  template <typename Wanted>
  void end_unless(Wanted wanted, FinishReason reason, const std::optional<Error>& error, SteadyTime now);
  // Hands the events out; how many of them were last ones.
  std::int64_t deliver();

  const CommitCounts& counts() const { return counts_; }

 private:
  void commit_one(const PlannedSequence& planned, SampledSequence sampled, SteadyTime now);
  void finish(const Sequence& sequence, FinishReason reason, TokenEvent event, SteadyTime now);
  void count_finish(FinishReason reason);

  Scheduler& scheduler_;
  CommitCounts counts_;
  std::vector<std::pair<std::shared_ptr<TokenStream>, TokenEvent>> outbox_;
};

template <typename Wanted>
void Committer::end_unless(Wanted wanted, FinishReason reason, const std::optional<Error>& error,
                           SteadyTime now) {
  std::vector<const Sequence*> unwanted;
  for (const Scheduler::Queue* queue : {&scheduler_.running(), &scheduler_.waiting()}) {
    for (const auto& sequence : *queue) {
      if (!wanted(*sequence)) unwanted.push_back(sequence.get());
    }
  }
  for (const Sequence* sequence : unwanted) end(*sequence, reason, error, now);
}

}  // namespace quire
