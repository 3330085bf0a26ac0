// The proof of exactness: whatever is computed beside a request, in whichever chunks, blocks and threads,
// after whichever preemptions and cache hits, its tokens and the bits of all its logprobs are those of its
// solo run: alone, in a pool with room, its prompt in one chunk, on one thread. A small random decoder on
// backend cpu.
//
// QUIRE_SCHEDULES=10000     how many (make test-long); 500 else, and few under sanitizers, which are 10 to 20
//                           times slower and look for other faults
// QUIRE_SCHEDULE_SEED=123   only this one: what a failure prints
#include "engine/random_schedule.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/sanitized.h"
#include "model/testing/tiny_model.h"

namespace quire {
namespace {

constexpr std::int64_t kDefaultSchedules = kSanitized ? 40 : 500;

// Two layers, so that a wrong key of the first changes all later ones.
std::unique_ptr<Model> make_small_model(Backend& backend) {
  static const TinyModel tiny({{"model_type", "llama"},
                               {"vocab_size", HistoryModel::kVocab},
                               {"hidden_size", 32},
                               {"intermediate_size", 48},
                               {"num_hidden_layers", 2},
                               {"num_attention_heads", 4},
                               {"num_key_value_heads", 2},
                               {"max_position_embeddings", 128},
                               {"rms_norm_eps", 1e-5},
                               {"rope_theta", 10000.0},
                               {"hidden_act", "silu"},
                               {"tie_word_embeddings", false}});
  auto model = load_model(tiny.checkpoint, backend, {});
  if (!model.ok()) throw std::runtime_error(model.error().message);
  return *std::move(model);
}

// A model of its own for each compute mode and number of threads, made once.
struct Machine {
  Machine(ComputeMode compute, int num_threads) : threads(num_threads) {
    BackendOptions options;
    options.compute = compute;
    options.num_threads = num_threads;
    auto made = make_backend("cpu", options);
    if (!made.ok()) throw std::runtime_error(made.error().message);
    backend = *std::move(made);
    model = make_small_model(*backend);
  }
  ThreadPool threads;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};

Machine& machine_for(ComputeMode compute, int num_threads) {
  static std::map<std::pair<ComputeMode, int>, std::unique_ptr<Machine>> machines;
  auto& machine = machines[{compute, num_threads}];
  if (!machine) machine = std::make_unique<Machine>(compute, num_threads);
  return *machine;
}

// Lets the test act on the engine thread before each step, and counts.
class WatchedModel final : public Model {
 public:
  explicit WatchedModel(Model& model) : model_(model) {}
  const ModelConfig& config() const override { return model_.config(); }
  Status allocate_kv(std::int64_t num_blocks, std::int64_t block_size, DType dtype) override {
    return model_.allocate_kv(num_blocks, block_size, dtype);
  }
  std::size_t kv_block_bytes(std::int64_t block_size, DType dtype) const override {
    return model_.kv_block_bytes(block_size, dtype);
  }
  Logits forward(const Batch& batch) override {
    if (before_forward) before_forward(num_forwards++);
    largest_batch = std::max(largest_batch, batch.num_seqs());
    return model_.forward(batch);
  }
  void copy_block(std::int32_t from, std::int32_t to) override {
    ++num_copies;
    model_.copy_block(from, to);
  }
  std::size_t weight_bytes() const override { return model_.weight_bytes(); }
  std::vector<std::string> report() const override { return model_.report(); }

  std::function<void(std::int64_t step)> before_forward;
  std::int64_t num_forwards = 0;
  std::int64_t num_copies = 0;
  std::int64_t largest_batch = 0;

 private:
  Model& model_;
};

std::vector<Output> run_solo(std::int64_t request, const Arithmetic& arithmetic) {
  Machine& machine = machine_for(arithmetic.compute, 1);
  EngineConfig config;
  config.block_size = 16;
  config.num_blocks = 16;
  config.max_model_len = kLongestSequence;
  config.max_num_seqs = 1;
  config.max_num_batched_tokens = 1024;
  config.kv_dtype = arithmetic.kv_dtype;
  config.seed_given = true;
  std::vector<Output> outputs;
  for (TokenRequest& choice : population_request(request)) {
    EXPECT_TRUE(machine.model->allocate_kv(config.num_blocks, config.block_size, config.kv_dtype).ok());
    choice.choice = 0;
    const auto stream = std::make_shared<TokenStream>();
    choice.stream = stream;
    Engine engine(*machine.model, machine.threads, config);
    EXPECT_TRUE(engine.submit(std::move(choice)).ok());
    engine.start();
    outputs.push_back(read_one(*stream));
  }
  return outputs;
}

// One output for each choice.
const std::vector<Output>& solo_outputs(std::int64_t request, const Arithmetic& arithmetic) {
  static std::map<std::pair<std::int64_t, Arithmetic>, std::vector<Output>> known;
  auto& outputs = known[{request, arithmetic}];
  if (outputs.empty()) outputs = run_solo(request, arithmetic);
  return outputs;
}

// How many schedules had what: a proof that meets no preemption proves nothing about preemption.
struct Coverage {
  std::int64_t schedules = 0;
  std::int64_t requests = 0;  // choices
  std::int64_t steps = 0;
  std::map<std::string, std::int64_t> schedules_with;

  void note(const std::string& what, bool happened) { schedules_with[what] += happened ? 1 : 0; }
  std::string text() const {
    std::string out = fmt::format("{} schedules, {} requests, {} steps; with", schedules, requests, steps);
    for (const auto& [what, count] : schedules_with) out += fmt::format(" {}: {},", what, count);
    out.back() = '.';
    return out;
  }
};

// Runs one schedule: sends each request before its step, on the engine thread, or when nothing else is left
// to compute; so the steps are the same each time.
class ScheduleRun {
 public:
  explicit ScheduleRun(const RandomSchedule& schedule)
      : schedule_(schedule),
        machine_(machine_for(schedule.arithmetic.compute, schedule.num_threads)),
        model_(*machine_.model) {
    EXPECT_TRUE(
        model_.allocate_kv(schedule.engine.num_blocks, schedule.engine.block_size, schedule.engine.kv_dtype)
            .ok());
    engine_ = std::make_unique<Engine>(model_, machine_.threads, schedule.engine);
    model_.before_forward = [this](std::int64_t step) { act_before(step); };
  }

  std::vector<std::vector<Output>> outputs() {
    std::vector<std::vector<Output>> outputs;
    engine_->start();
    for (std::size_t i = 0; i < schedule_.arrivals.size(); ++i) {
      {
        // All earlier ones have ended: the engine is idle, or has been given this one.
        std::lock_guard<std::mutex> lock(mutex_);
        if (i == streams_.size()) send_next();
      }
      outputs.push_back(read_all(*streams_at(i)));
    }
    return outputs;
  }

  void check_end(std::int64_t num_choices) const {
    const EngineStats stats = engine_->stats();
    EXPECT_EQ(stats.num_running, 0);
    EXPECT_EQ(stats.num_waiting, 0);
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
    EXPECT_EQ(stats.finished_error, 0u);
    EXPECT_EQ(static_cast<std::int64_t>(stats.finished_stop + stats.finished_length + stats.finished_abort),
              num_choices);
  }
  const WatchedModel& model() const { return model_; }
  // When the engine first planned it, given what its last event says.
  SteadyTime scheduled_at(std::size_t arrival, const Output& output) const {
    return sent_at_[arrival] + std::chrono::duration_cast<SteadyTime::duration>(
                                   std::chrono::duration<double>(output.last->times.queued));
  }

 private:
  std::shared_ptr<TokenStream> streams_at(std::size_t i) {
    std::lock_guard<std::mutex> lock(mutex_);
    return streams_[i];
  }

  void act_before(std::int64_t step) {
    std::lock_guard<std::mutex> lock(mutex_);
    while (streams_.size() < schedule_.arrivals.size() && schedule_.arrivals[streams_.size()].step <= step) {
      send_next();
    }
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      const std::int64_t cancel_step = schedule_.arrivals[i].cancel_step;
      if (cancel_step >= 0 && cancel_step <= step) streams_[i]->cancel_all();
    }
  }

  void send_next() {
    const Arrival& arrival = schedule_.arrivals[streams_.size()];
    std::vector<TokenRequest> choices = population_request(arrival.request);
    sent_at_.push_back(std::chrono::steady_clock::now());
    streams_.push_back(std::make_shared<TokenStream>(static_cast<std::int32_t>(choices.size())));
    for (TokenRequest& choice : choices) {
      choice.priority = arrival.priority;
      choice.stream = streams_.back();
    }
    const Status status = engine_->submit_all(std::move(choices));
    EXPECT_TRUE(status.ok()) << status.error().message;
  }

  const RandomSchedule& schedule_;
  Machine& machine_;
  WatchedModel model_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<TokenStream>> streams_;  // of the arrivals sent so far
  std::vector<SteadyTime> sent_at_;
  std::unique_ptr<Engine> engine_;  // ends first: its thread uses all above
};

// A cancelled one is right as far as it came.
void expect_beginning(const Output& found, const Output& solo) {
  ASSERT_LE(found.tokens.size(), solo.tokens.size());
  for (std::size_t i = 0; i < found.tokens.size(); ++i) {
    EXPECT_EQ(found.tokens[i], solo.tokens[i]);
    expect_same(found.logprobs.at(i), solo.logprobs.at(i));
  }
}

// An earlier one, not less urgent, started later. Only for the coverage: the clocks may err by microseconds.
bool has_overtaking(const RandomSchedule& schedule, const ScheduleRun& run,
                    const std::vector<std::vector<Output>>& outputs) {
  constexpr std::chrono::microseconds kClockError{20};
  const auto finished = [&](std::size_t i) { return outputs[i][0].last->finish != FinishReason::kAbort; };
  for (std::size_t later = 1; later < outputs.size(); ++later) {
    for (std::size_t i = 0; i < later; ++i) {
      if (finished(i) && finished(later) &&
          schedule.arrivals[i].priority <= schedule.arrivals[later].priority &&
          run.scheduled_at(i, outputs[i][0]) > run.scheduled_at(later, outputs[later][0]) + kClockError) {
        return true;
      }
    }
  }
  return false;
}

void prove(const RandomSchedule& schedule, Coverage& coverage) {
  for (const Arrival& arrival : schedule.arrivals) solo_outputs(arrival.request, schedule.arithmetic);
  ScheduleRun run(schedule);
  const auto outputs = run.outputs();
  std::int64_t num_choices = 0;
  bool preempted = false, hit = false, cancelled = false, chunked = false, several = false, evicted = false;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::int64_t number = schedule.arrivals[i].request;
    const auto requests = population_request(number);
    const auto& solo = solo_outputs(number, schedule.arithmetic);
    several |= requests.size() > 1;
    for (std::size_t c = 0; c < requests.size(); ++c, ++num_choices) {
      SCOPED_TRACE(fmt::format("arrival {}, request {}, choice {}", i, number, c));
      const Output& found = outputs[i][c];
      const bool aborted = found.last->finish == FinishReason::kAbort;
      if (aborted) {
        EXPECT_GE(schedule.arrivals[i].cancel_step, 0);
        expect_beginning(found, solo[c]);
      } else {
        expect_same(found, solo[c]);
      }
      cancelled |= aborted && !found.tokens.empty();
      preempted |= found.last->times.num_preemptions > 0;
      hit |= found.last->times.num_cached_tokens > 0;
      const auto num_prompt = static_cast<std::int64_t>(requests[c].prompt.size());
      chunked |= num_prompt > schedule.engine.max_num_batched_tokens;
      evicted |= requests[c].eviction.evicts() &&
                 num_prompt > requests[c].eviction.sinks + requests[c].eviction.window;
    }
  }
  run.check_end(num_choices);
  ++coverage.schedules;
  coverage.requests += num_choices;
  coverage.steps += run.model().num_forwards;
  coverage.note("preemption", preempted);
  coverage.note("prefix hit", hit);
  coverage.note("cancel in decode", cancelled);
  coverage.note("chunked prompt", chunked);
  coverage.note("several choices", several);
  coverage.note("streaming eviction", evicted);
  coverage.note("overtaking", has_overtaking(schedule, run, outputs));
  coverage.note("copy on write", run.model().num_copies > 0);
  coverage.note("batch of 3 or more", run.model().largest_batch >= 3);
  coverage.note("two threads", schedule.num_threads > 1);
}

std::int64_t number_from_environment(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::stoll(text);
}

// Per mille of the schedules in which each must happen at least: about half of what is drawn.
constexpr std::pair<const char*, std::int64_t> kRequired[] = {
    {"preemption", 100},      {"cancel in decode", 60},   {"chunked prompt", 200},
    {"several choices", 200}, {"streaming eviction", 50}, {"batch of 3 or more", 200},
    {"two threads", 100},     {"overtaking", 20},
};

TEST(RandomSchedule, EveryRequestIsItsSoloRun) {  // KVC-14, KVC-08
  const std::int64_t only = number_from_environment("QUIRE_SCHEDULE_SEED", -1);
  const std::int64_t num_schedules =
      only >= 0 ? 1 : number_from_environment("QUIRE_SCHEDULES", kDefaultSchedules);
  Coverage coverage;
  for (std::int64_t i = 0; i < num_schedules; ++i) {
    const std::int64_t seed = only >= 0 ? only : i;
    SCOPED_TRACE(fmt::format("to run it alone: QUIRE_SCHEDULE_SEED={} quire_engine_test --gtest_filter={}",
                             seed, "RandomSchedule.*"));
    prove(draw_schedule(static_cast<std::uint64_t>(seed)), coverage);
    ASSERT_FALSE(HasFailure()) << "schedule " << seed << " of " << num_schedules;
  }
  std::printf("%s\n", coverage.text().c_str());
  if (num_schedules < 500) return;  // too few to count
  for (const auto& [what, per_mille] : kRequired) {
    EXPECT_GE(coverage.schedules_with[what] * 1000, num_schedules * per_mille)
        << "too few schedules with: " << what;
  }
}

}  // namespace
}  // namespace quire
