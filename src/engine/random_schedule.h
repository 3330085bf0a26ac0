// Purpose: draws what the exactness proof runs: a population of requests, and schedules that send some of
// them to one engine: arrivals, cancels, priorities, a pool, budgets, a number of threads, a KV type, a
// compute mode. In: a seed. Out: the same plain values for the same seed on every machine. Thread: plain
// values. Out of scope: running them (random_schedule_test.cc).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "engine/engine_test_util.h"

namespace quire {

// Uniform integers from one stream of Philox; the standard distributions differ between libraries.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}
  std::int64_t between(std::int64_t first, std::int64_t last) {  // both included
    const auto range = static_cast<std::uint64_t>(last - first + 1);
    return first + static_cast<std::int64_t>(random_bits(seed_, count_++) % range);
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }
  template <typename T>
  T one_of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(values.size()) - 1))];
  }

 private:
  std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

// What a request's numbers may depend on: it has one solo run for each of these.
struct Arithmetic {
  ComputeMode compute = ComputeMode::kF32;
  DType kv_dtype = DType::kF32;
  auto operator<=>(const Arithmetic&) const = default;
};

inline constexpr std::int64_t kLongestSequence = 112;  // prompt and output of any request drawn here
inline constexpr std::int64_t kPageSize = 64;  // requests of the population that one schedule draws from

// Number `index` of the population. Prompts begin with parts of a few documents, so that many share prefixes.
// Each choice of it is a request of its own, with a seed of its own.
inline std::vector<TokenRequest> population_request(std::int64_t index) {
  Draw draw(0x5eed0000 + static_cast<std::uint64_t>(index));
  std::vector<std::int32_t> prompt = random_prompt(static_cast<std::uint64_t>(draw.between(1, 4)), 56);
  prompt.resize(static_cast<std::size_t>(draw.one_in(3) ? draw.between(0, 8) : draw.between(0, 56)));
  for (std::int64_t left = draw.between(1, 20); left > 0; --left) {
    prompt.push_back(static_cast<std::int32_t>(draw.between(3, 92)));
  }
  TokenRequest request = make_request(std::move(prompt), draw.between(1, 36));
  SamplingParams& params = request.params;
  params.temperature = draw.one_of<double>({0, 0.7, 1.0, 1.5});
  params.top_k = draw.one_of<std::int64_t>({0, 0, 1, 20});
  params.top_p = draw.one_of<double>({1, 1, 0.9});
  params.repetition_penalty = draw.one_of<double>({1, 1, 1.2});
  params.presence_penalty = draw.one_of<double>({0, 0, 0.5});
  params.ignore_eos = draw.one_in(2);
  params.num_logprobs = draw.between(0, 3);
  if (draw.one_in(4)) params.num_prompt_logprobs = draw.between(0, 2);
  if (draw.one_in(12)) params.max_tokens = 0;  // scores its prompt
  if (params.max_tokens == 0) params.num_prompt_logprobs = 1;
  if (draw.one_in(6))
    request.eviction = {KvEvictionPolicy::kStreaming, draw.between(0, 4), draw.between(16, 24)};
  const auto seed = static_cast<std::uint64_t>(draw.between(0, 1 << 30));
  std::vector<TokenRequest> choices(static_cast<std::size_t>(draw.one_in(4) ? draw.between(2, 3) : 1),
                                    request);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    choices[i].choice = static_cast<std::int32_t>(i);
    choices[i].params.seed = seed + i;
  }
  return choices;
}

struct Arrival {
  std::int64_t request = 0;  // its number in the population
  std::int64_t step = 0;     // before this step of the engine; earlier if it idles
  std::int32_t priority = 0;
  std::int64_t cancel_step = -1;  // -1 = never
};

struct RandomSchedule {
  Arithmetic arithmetic;
  int num_threads = 1;
  EngineConfig engine;
  std::vector<Arrival> arrivals;  // in order of steps
};

inline RandomSchedule draw_schedule(std::uint64_t seed) {
  Draw draw(0xa11ce + seed);
  RandomSchedule schedule;
  schedule.arithmetic.compute =
      draw.one_of<ComputeMode>({ComputeMode::kF32, ComputeMode::kBf16, ComputeMode::kInt8});
  schedule.arithmetic.kv_dtype = draw.one_of<DType>({DType::kF32, DType::kBf16, DType::kF16});
  schedule.num_threads = draw.one_in(4) ? 2 : 1;
  EngineConfig& engine = schedule.engine;
  engine.kv_dtype = schedule.arithmetic.kv_dtype;
  engine.block_size = draw.one_of<std::int64_t>({1, 2, 4, 8, 16});
  engine.max_model_len = kLongestSequence;
  // From room for one sequence, so that they fight for blocks, to room for two of the longest.
  const std::int64_t fewest = kLongestSequence / engine.block_size;
  engine.num_blocks = draw.between(fewest, draw.one_in(3) ? 2 * fewest : fewest + fewest / 4);
  engine.max_num_seqs = draw.one_in(6) ? 1 : draw.between(2, 8);
  engine.max_num_batched_tokens = engine.max_num_seqs + draw.one_of<std::int64_t>({0, 3, 16, 64, 256});
  engine.seed_given = true;
  const std::int64_t page = static_cast<std::int64_t>(seed) / 1000;
  const std::int64_t spread = draw.one_of<std::int64_t>({0, 6, 25});  // a burst, or one after the other
  for (std::int64_t left = draw.between(2, 7); left > 0; --left) {
    Arrival arrival;
    arrival.request = page * kPageSize + draw.between(0, kPageSize - 1);
    arrival.step = draw.between(0, spread);
    arrival.priority = draw.one_in(3) ? static_cast<std::int32_t>(draw.between(-1, 1)) : 0;
    if (draw.one_in(8)) arrival.cancel_step = arrival.step + draw.between(0, 15);
    schedule.arrivals.push_back(arrival);
  }
  std::stable_sort(schedule.arrivals.begin(), schedule.arrivals.end(),
                   [](const Arrival& a, const Arrival& b) { return a.step < b.step; });
  return schedule;
}

}  // namespace quire
