#include "engine/scheduler.h"

#include <tuple>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

bool runs_before(const std::unique_ptr<Sequence>& a, const std::unique_ptr<Sequence>& b) {
  return std::pair(a->priority, a->arrival) < std::pair(b->priority, b->arrival);
}

bool waits_before(const std::unique_ptr<Sequence>& a, const std::unique_ptr<Sequence>& b) {
  // Of one priority, the preempted first: someone is reading their output.
  return std::tuple(a->priority, !a->preempted_at, a->arrival) <
         std::tuple(b->priority, !b->preempted_at, b->arrival);
}

// The prompt positions whose logits are still to be scored lie in [first, last).
std::pair<std::int64_t, std::int64_t> unscored(const Sequence& sequence) {
  if (!sequence.wants_prompt_logprobs()) return {0, 0};
  return {sequence.num_scored, sequence.num_prompt - 1};
}

PlannedSequence plan_tokens(Sequence& sequence, std::int64_t count) {
  PlannedSequence planned;
  planned.sequence = &sequence;
  planned.first = sequence.num_computed;
  planned.count = count;
  const std::int64_t end = planned.first + count;
  const auto [first_unscored, last_unscored] = unscored(sequence);
  planned.first_scored = std::max(first_unscored, planned.first);
  planned.num_scored = std::max<std::int64_t>(0, std::min(last_unscored, end) - planned.first_scored);
  planned.samples = end == sequence.num_known() && sequence.wants_tokens();
  return planned;
}

// As many of the missing tokens as the budgets allow; at least one if both are at least one.
std::int64_t affordable(Sequence& sequence, std::int64_t tokens, std::int64_t rows) {
  std::int64_t count = std::min(sequence.num_known() - sequence.num_computed, tokens);
  if (count <= 0 || rows <= 0) return 0;
  PlannedSequence planned = plan_tokens(sequence, count);
  if (planned.num_scored > rows) count = planned.first_scored + rows - planned.first;
  planned = plan_tokens(sequence, count);
  // One row too many is the last one, of the token to sample.
  return planned.num_rows() > rows ? count - 1 : count;
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, KvPool& pool) : config_(config), pool_(pool) {
  QUIRE_CHECK_GT(config.max_num_seqs, 0);
  QUIRE_CHECK_GE(config.max_num_batched_tokens, config.max_num_seqs);
  QUIRE_CHECK_GE(config.max_logit_rows, config.max_num_seqs);
  QUIRE_CHECK_GE(config.max_overtakes, 0);
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  QUIRE_CHECK_LE(kv_peak_blocks(*sequence, pool_), pool_.num_blocks()) << "the inbox let it in";
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), sequence, waits_before),
                  std::move(sequence));
}

std::unique_ptr<Sequence> Scheduler::remove(const Sequence& sequence) {
  for (Queue* queue : {&running_, &waiting_}) {
    const auto found = std::find_if(queue->begin(), queue->end(),
                                    [&](const auto& candidate) { return candidate.get() == &sequence; });
    if (found == queue->end()) continue;
    std::unique_ptr<Sequence> removed = std::move(*found);
    queue->erase(found);
    release_blocks(*removed);
    return removed;
  }
  QUIRE_CHECK(false) << "sequence " << sequence.id << " is not here";
  return nullptr;
}

StepPlan Scheduler::schedule(SteadyTime now) {
  StepPlan plan;
  Budget left{config_.max_num_batched_tokens, config_.max_logit_rows};
  plan_running(plan, left, now);
  // What a preemption freed is for those that run; admitting into it would only preempt again.
  if (plan.num_preempted == 0) admit_waiting(plan, left, now);
  QUIRE_CHECK(empty() || !plan.sequences.empty()) << "sequences wait and none can move";
  return plan;
}

void Scheduler::plan_running(StepPlan& plan, Budget& left, SteadyTime now) {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    const auto num_behind = static_cast<std::int64_t>(running_.size() - i - 1);
    const std::int64_t num_tokens = std::min(left.tokens - num_behind, kv_chunk_limit(sequence, pool_));
    const std::int64_t count = affordable(sequence, num_tokens, left.rows - num_behind);
    QUIRE_CHECK_GT(count, 0) << "sequence " << sequence.id;
    if (!secure_blocks(sequence, sequence.num_computed + count, plan, now)) return;  // it was the last
    plan_sequence(sequence, count, plan, left);
  }
}

// Gets blocks of its own for positions [num_computed, end), preempting from the back. False if the sequence
// itself had to go.
bool Scheduler::secure_blocks(Sequence& sequence, std::int64_t end, StepPlan& plan, SteadyTime now) {
  evict(sequence);
  std::vector<std::int32_t>& blocks = sequence.blocks;
  const std::int64_t num_wanted = pool_.blocks_for(end);
  const auto is_shared = [&](std::int32_t block) { return pool_.num_references(block) > 1; };
  for (;;) {
    const auto num_held = static_cast<std::int64_t>(blocks.size());
    const auto first_written =
        blocks.begin() + std::min(num_held, sequence.num_computed / pool_.block_size());
    const auto last_written = blocks.begin() + std::min(num_held, num_wanted);
    const std::int64_t num_missing = std::max<std::int64_t>(0, num_wanted - num_held) +
                                     std::count_if(first_written, last_written, is_shared) -
                                     static_cast<std::int64_t>(sequence.spare_blocks.size());
    if (num_missing <= pool_.num_free()) {
      // Copy-on-write: what others read as well is copied before this sequence writes into it.
      for (auto block = first_written; block != last_written; ++block) {
        if (!is_shared(*block)) continue;
        plan.copies.push_back({*block, pool_.take()});
        pool_.release(*block);
        *block = plan.copies.back().to;
      }
      while (static_cast<std::int64_t>(blocks.size()) < num_wanted) blocks.push_back(take_block(sequence));
      // Once all is computed, each token needs at most one block more, and evicts as many.
      while (end == sequence.num_known() && sequence.spare_blocks.size() > 1) {
        pool_.release(sequence.spare_blocks.back());
        sequence.spare_blocks.pop_back();
      }
      return true;
    }
    const bool was_itself = running_.back().get() == &sequence;
    preempt_last(now);
    ++plan.num_preempted;
    if (was_itself) return false;
  }
}

// Puts the blocks that no row from num_computed on sees aside for the sequence's next positions.
void Scheduler::evict(Sequence& sequence) {
  if (!sequence.eviction.evicts()) return;
  const auto num_blocks = static_cast<std::int64_t>(sequence.blocks.size());
  const std::int64_t end = std::min(num_blocks, kv_first_window_block(sequence, pool_));
  std::int64_t b = std::max(sequence.first_live_block, pool_.blocks_for(sequence.eviction.sinks));
  for (; b < end; ++b) {
    std::int32_t& block = sequence.blocks[static_cast<std::size_t>(b)];
    sequence.spare_blocks.push_back(std::exchange(block, kEvictedBlock));
  }
  sequence.first_live_block = b;
}

std::int32_t Scheduler::take_block(Sequence& sequence) {
  if (sequence.spare_blocks.empty()) return pool_.take();
  const std::int32_t block = sequence.spare_blocks.back();
  sequence.spare_blocks.pop_back();
  return block;
}

void Scheduler::release_blocks(Sequence& sequence) {
  std::erase(sequence.blocks, kEvictedBlock);
  pool_.release_all(sequence.blocks);
  pool_.release_all(sequence.spare_blocks);
  sequence.first_live_block = 0;
}

void Scheduler::preempt_last(SteadyTime now) {
  std::unique_ptr<Sequence> victim = std::move(running_.back());
  running_.pop_back();
  release_blocks(*victim);
  victim->num_computed = 0;
  victim->preempted_at = now;
  ++victim->num_preemptions;
  ++num_preemptions_;
  add(std::move(victim));
}

void Scheduler::admit_waiting(StepPlan& plan, Budget& left, SteadyTime now) {
  std::vector<Sequence*> passed_over;
  const auto may_overtake = [&] {
    return static_cast<std::int64_t>(passed_over.size()) <= config_.max_overtakes &&
           std::all_of(passed_over.begin(), passed_over.end(), [&](const Sequence* sequence) {
             return sequence->num_overtaken < config_.max_overtakes;
           });
  };
  for (std::size_t i = 0; i < waiting_.size() && may_overtake();) {
    if (static_cast<std::int64_t>(running_.size()) >= config_.max_num_seqs) return;
    Sequence& sequence = *waiting_[i];
    const std::int64_t count =
        affordable(sequence, std::min(left.tokens, kv_chunk_limit(sequence, pool_)), left.rows);
    if (count <= 0) return;
    const std::int64_t num_wanted = kv_admission_blocks(sequence, pool_);
    if (num_wanted > pool_.num_free()) {
      passed_over.push_back(&sequence);
      ++i;
      continue;
    }
    // One that was running before does not count as a newcomer.
    if (!sequence.preempted_at) {
      for (Sequence* passed : passed_over) ++passed->num_overtaken;
    } else {
      sequence.preempted_for += now - *sequence.preempted_at;
      sequence.preempted_at.reset();
    }
    sequence.num_overtaken = 0;
    if (!sequence.scheduled_at) sequence.scheduled_at = now;
    std::vector<std::int32_t>& taken = sequence.eviction.evicts() ? sequence.spare_blocks : sequence.blocks;
    while (static_cast<std::int64_t>(taken.size()) < num_wanted) taken.push_back(pool_.take());
    if (sequence.eviction.evicts()) {
      QUIRE_CHECK(secure_blocks(sequence, sequence.num_computed + count, plan, now));
    }
    plan_sequence(sequence, count, plan, left);
    std::unique_ptr<Sequence> admitted = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    running_.insert(std::upper_bound(running_.begin(), running_.end(), admitted, runs_before),
                    std::move(admitted));
  }
}

void Scheduler::plan_sequence(Sequence& sequence, std::int64_t count, StepPlan& plan, Budget& left) {
  const PlannedSequence planned = plan_tokens(sequence, count);
  left.tokens -= planned.count;
  left.rows -= planned.num_rows();
  plan.num_tokens += planned.count;
  plan.num_rows += planned.num_rows();
  plan.sequences.push_back(planned);
}

}  // namespace quire
