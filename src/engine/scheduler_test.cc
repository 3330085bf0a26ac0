// What the traces (tests/traces) cannot say: random load, copy-on-write, bounds on waiting.
#include "engine/scheduler.h"

#include <map>
#include <random>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "engine/commit.h"
#include "engine/inbox.h"

namespace quire {
namespace {

struct Load {
  std::int64_t num_blocks = 0;
  std::int64_t block_size = 0;
  SchedulerConfig config;
};

Load random_load(std::mt19937& random) {
  Load load;
  load.num_blocks = 4 + random() % 30;
  load.block_size = 1 + random() % 6;
  load.config.max_num_seqs = 1 + random() % 8;
  load.config.max_num_batched_tokens = load.config.max_num_seqs + random() % 20;
  load.config.max_logit_rows = load.config.max_num_seqs + random() % 4;
  load.config.max_overtakes = random() % 4;
  return load;
}

// A scheduler with a commit behind it and no model: sequence outputs are just counted.
class Harness {
 public:
  explicit Harness(const Load& load)
      : load_(load),
        pool_(load.num_blocks, load.block_size),
        scheduler_(load.config, pool_),
        committer_(scheduler_) {
    inbox_.vocab_size = 10;
    inbox_.max_model_len = load.num_blocks * load.block_size;
  }

  std::shared_ptr<TokenStream> add(std::int64_t num_prompt, std::int64_t max_tokens, bool scores,
                                   std::int32_t priority) {
    TokenRequest request;
    request.id = std::to_string(num_added_);
    request.prompt.assign(static_cast<std::size_t>(num_prompt), 1);
    request.params.max_tokens = max_tokens;
    request.params.num_prompt_logprobs = scores ? 0 : -1;
    request.priority = priority;
    request.stream = std::make_shared<TokenStream>();
    if (!check_request(request, inbox_).ok()) return nullptr;
    auto stream = request.stream;
    scheduler_.add(make_sequence(std::move(request), inbox_, num_added_++, {}));
    return stream;
  }

  void step() {
    committer_.end_unless([](const Sequence& sequence) { return !sequence.is_cancelled(); },
                          FinishReason::kAbort, std::nullopt, {});
    const StepPlan plan = scheduler_.schedule({});
    check(plan);
    SampledTokens sampled;
    for (const PlannedSequence& planned : plan.sequences) {
      SampledSequence& result = sampled.emplace_back();
      result.prompt_logprobs.resize(static_cast<std::size_t>(planned.num_scored));
      if (planned.samples) result.token = 3;
    }
    committer_.commit(plan, std::move(sampled), {});
    committer_.deliver();
  }

  void check(const StepPlan& plan) const {
    ASSERT_LE(plan.num_tokens, load_.config.max_num_batched_tokens);
    ASSERT_LE(plan.num_rows, load_.config.max_logit_rows);
    ASSERT_LE(static_cast<std::int64_t>(scheduler_.running().size()), load_.config.max_num_seqs);
    std::set<std::int32_t> held;
    std::size_t num_held = 0;
    for (const auto& sequence : scheduler_.running()) {
      held.insert(sequence->blocks.begin(), sequence->blocks.end());
      num_held += sequence->blocks.size();
      ASSERT_LT(sequence->num_computed, sequence->num_known());
    }
    ASSERT_EQ(held.size(), num_held) << "a block has two owners";
    ASSERT_EQ(static_cast<std::int64_t>(num_held) + pool_.num_free(), pool_.num_blocks());
    std::set<const Sequence*> planned_once;
    std::int64_t num_tokens = 0;
    std::int64_t num_rows = 0;
    for (const PlannedSequence& planned : plan.sequences) {
      const Sequence& sequence = *planned.sequence;
      ASSERT_TRUE(planned_once.insert(&sequence).second);
      ASSERT_GE(planned.count, 1);
      ASSERT_EQ(planned.first, sequence.num_computed);
      ASSERT_LE(planned.first + planned.count, sequence.num_known());
      ASSERT_LE(planned.first + planned.count,
                static_cast<std::int64_t>(sequence.blocks.size()) * pool_.block_size());
      num_tokens += planned.count;
      num_rows += planned.num_rows();
    }
    ASSERT_EQ(num_tokens, plan.num_tokens);
    ASSERT_EQ(num_rows, plan.num_rows);
    // All that run move on, unless this step preempted.
    if (plan.num_preempted == 0) {
      ASSERT_EQ(plan.sequences.size(), scheduler_.running().size());
    }
  }

  const Load load_;
  InboxConfig inbox_;
  KvPool pool_;
  Scheduler scheduler_;
  Committer committer_;
  std::uint64_t num_added_ = 0;
};

TEST(Scheduler, KeepsItsInvariantsUnderRandomLoad) {
  std::uint64_t num_preemptions = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Harness harness(random_load(random));
    struct Expected {
      std::shared_ptr<TokenStream> stream;
      std::int64_t num_tokens;
      std::size_t num_scores;
      bool cancelled;
    };
    std::vector<Expected> requests;
    const std::int64_t capacity = harness.inbox_.max_model_len;
    for (int i = 0; i < 120; ++i) {
      if (random() % 2 == 0) {
        const std::int64_t num_prompt = 1 + static_cast<std::int64_t>(random()) % capacity;
        const std::int64_t max_tokens = random() % 12;
        const bool scores = random() % 3 == 0;
        auto stream = harness.add(num_prompt, max_tokens, scores, static_cast<std::int32_t>(random() % 2));
        if (stream != nullptr) {
          requests.push_back({stream, std::min(max_tokens, capacity - num_prompt),
                              scores ? static_cast<std::size_t>(num_prompt) : 0, false});
        }
      }
      if (random() % 6 == 0 && !requests.empty()) {
        Expected& cancelled = requests[random() % requests.size()];
        cancelled.stream->cancel_all();
        cancelled.cancelled = true;
      }
      harness.step();
      if (HasFatalFailure()) return;
    }
    // Everything ends, within the steps that one after another would take, each recomputed for each token.
    int num_steps = 0;
    while (!harness.scheduler_.empty() && ++num_steps < 100000) {
      harness.step();
      if (HasFatalFailure()) return;
    }
    ASSERT_TRUE(harness.scheduler_.empty());
    EXPECT_EQ(harness.pool_.num_free(), harness.pool_.num_blocks());
    for (const Expected& request : requests) {
      std::int64_t num_tokens = 0;
      std::size_t num_scores = 0;
      FinishReason finish = FinishReason::kNone;
      while (auto event = request.stream->next(std::chrono::milliseconds(0))) {
        ASSERT_EQ(finish, FinishReason::kNone);
        num_tokens += event->token ? 1 : 0;
        num_scores += event->prompt_logprobs.size();
        finish = event->finish;
      }
      if (finish == FinishReason::kAbort) {
        EXPECT_TRUE(request.cancelled);
      } else {
        EXPECT_EQ(finish, FinishReason::kLength);
        EXPECT_EQ(num_tokens, request.num_tokens);
        EXPECT_EQ(num_scores, request.num_scores);
      }
    }
    num_preemptions += harness.scheduler_.num_preemptions();
  }
  EXPECT_GT(num_preemptions, 500u);
}

TEST(Scheduler, ALargeRequestStartsWhileSmallOnesKeepComing) {  // KVC-13
  Load load{32, 4, {}};
  load.config.max_num_seqs = 16;
  load.config.max_num_batched_tokens = 64;
  load.config.max_overtakes = 8;
  Harness harness(load);
  // Before it came, small ones of 2 + 10 tokens had filled the pool.
  for (int i = 0; i < 16; ++i) harness.add(2, 10, false, 0);
  harness.step();
  auto large = harness.add(100, 4, false, 0);
  int step = 0;
  for (std::optional<TokenEvent> first; !first; ++step) {
    harness.add(2, 10, false, 0);
    harness.step();
    first = large->next(std::chrono::milliseconds(0));
    // Ten steps until those before it have ended; eight overtake it meanwhile, the last of them ten steps
    // more at most; two for its own prompt.
    ASSERT_LT(step, 10 + 10 + 2);
  }
  // The small ones that waited meanwhile all end.
  for (int i = 0; i < 200; ++i) harness.step();
  EXPECT_TRUE(harness.scheduler_.empty());
}

TEST(Scheduler, CopiesASharedBlockBeforeWritingIntoIt) {  // KVC-07's mechanism
  Load load{8, 4, {}};
  Harness harness(load);
  harness.add(6, 9, false, 0);
  harness.step();
  Sequence& sequence = *harness.scheduler_.running().front();
  ASSERT_EQ(sequence.blocks.size(), 2u);
  // Someone else reads both blocks; position 6 is written next, in the second.
  const std::vector<std::int32_t> shared = sequence.blocks;
  for (const std::int32_t block : shared) harness.pool_.share(block);
  const StepPlan plan = harness.scheduler_.schedule({});
  ASSERT_EQ(plan.copies.size(), 1u);
  EXPECT_EQ(plan.copies[0].from, shared[1]);
  EXPECT_EQ(plan.copies[0].to, sequence.blocks[1]);
  EXPECT_NE(sequence.blocks[1], shared[1]);
  EXPECT_EQ(sequence.blocks[0], shared[0]);
  EXPECT_EQ(harness.pool_.num_references(shared[0]), 2);
  EXPECT_EQ(harness.pool_.num_references(shared[1]), 1);
  EXPECT_EQ(harness.pool_.num_references(sequence.blocks[1]), 1);
}

}  // namespace
}  // namespace quire
