// Purpose: decides what each step computes. In: sequences from the inbox, free blocks. Out: a StepPlan.
// Thread: engine thread, which owns all of it. Out of scope: what tokens mean, time (except for statistics),
// memory layout.
//
// Policy, in order of weight:
// - Running sequences come first, in order of (priority, arrival). Each is given what it lacks (num_known -
//   num_computed) as far as the budgets go, but never what the ones behind it need to move on by one token: a
//   long prompt cannot stop those that generate.
// - A waiting sequence is admitted when its whole present context and one token more fit in the free blocks,
//   which it takes at once. So a prompt in progress cannot run out of memory; only generated tokens claim
//   more.
// - When a claim finds no free block, the running sequence that is last in order gives up all of its blocks
// and
//   waits, ahead of those that have not run yet; later it computes its prompt and its outputs again. The
//   first in order is never preempted for another, and one sequence alone always fits (the inbox refuses what
//   does not), so each step makes progress.
// - A sequence that evicts (kv_eviction.h) needs a bounded number of blocks, whatever its length. It is
//   admitted when its prompt can run within them and keeps what it evicts for its own next positions.
// - A waiting sequence that does not fit lets later ones overtake it, at most max_overtakes times. After that
//   nothing new is admitted before it is: it starts at the latest when all that run by then have ended. So a
//   large request delays small ones for a bounded time, and small ones it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kv_pool.h"
#include "engine/step_plan.h"

namespace quire {

// Rows of logits per step, unless more sequences run: 256 rows of a vocabulary of 152k are 156 MB. Only
// prompt logprobs ever want more than one row per sequence.
inline constexpr std::int64_t kMaxLogitRows = 256;

struct SchedulerConfig {
  std::int64_t max_num_seqs = 128;
  std::int64_t max_num_batched_tokens = 2048;   // >= max_num_seqs
  std::int64_t max_logit_rows = kMaxLogitRows;  // >= max_num_seqs
  std::int64_t max_overtakes = 32;
};

class Scheduler {
 public:
  using Queue = std::vector<std::unique_ptr<Sequence>>;

  Scheduler(const SchedulerConfig& config, KvPool& pool);

  void add(std::unique_ptr<Sequence> sequence);
  // Not empty if there is a sequence at all.
  StepPlan schedule(SteadyTime now);
  // Takes a sequence out and frees its blocks.
  std::unique_ptr<Sequence> remove(const Sequence& sequence);

  bool empty() const { return running_.empty() && waiting_.empty(); }
  // In order of (priority, arrival), and of admission.
  const Queue& running() const { return running_; }
  const Queue& waiting() const { return waiting_; }
  std::uint64_t num_preemptions() const { return num_preemptions_; }

 private:
  struct Budget {
    std::int64_t tokens = 0;
    std::int64_t rows = 0;
  };
  void plan_running(StepPlan& plan, Budget& left, SteadyTime now);
  void admit_waiting(StepPlan& plan, Budget& left, SteadyTime now);
  bool secure_blocks(Sequence& sequence, std::int64_t end, StepPlan& plan, SteadyTime now);
  void preempt_last(SteadyTime now);
  void evict(Sequence& sequence);
  std::int32_t take_block(Sequence& sequence);
  void release_blocks(Sequence& sequence);
  void plan_sequence(Sequence& sequence, std::int64_t count, StepPlan& plan, Budget& left);

  const SchedulerConfig config_;
  KvPool& pool_;
  Queue running_;
  Queue waiting_;
  std::uint64_t num_preemptions_ = 0;
};

}  // namespace quire
