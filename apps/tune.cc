#include "apps/tune.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "model/batch.h"
#include "model/model.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kBlockSize = 16;
// A candidate must be this much faster than the default to replace it: less is noise.
constexpr double kLeastGain = 0.01;
// Per shape and round of candidates; at least kLeastRounds, because the least time of one round is noise.
constexpr double kSecondsPerCandidate = 1.0;
constexpr int kLeastRounds = 3;
constexpr int kMostRounds = 30;

struct Shape {
  std::string name;
  std::int64_t num_seqs = 1;
  std::int64_t new_tokens = 1;  // of each sequence
  std::int64_t context = 0;     // tokens before them
  std::int64_t blocks_per_seq() const { return (context + new_tokens + kBlockSize - 1) / kBlockSize; }
};

// Every sequence asks for the logits of its last token.
Batch make_batch(const Shape& shape, std::int64_t vocab_size) {
  Batch batch;
  batch.block_table_stride = shape.blocks_per_seq();
  batch.query_starts.push_back(0);
  std::int32_t next_block = 0;
  for (std::int64_t seq = 0; seq < shape.num_seqs; ++seq) {
    const std::int32_t first_block = next_block;
    for (std::int64_t b = 0; b < shape.blocks_per_seq(); ++b) batch.block_tables.push_back(next_block++);
    for (std::int64_t t = shape.context; t < shape.context + shape.new_tokens; ++t) {
      batch.token_ids.push_back(static_cast<std::int32_t>((seq * 7919 + t * 31 + 1) % vocab_size));
      batch.positions.push_back(static_cast<std::int32_t>(t));
      batch.slots.push_back(static_cast<std::int32_t>(first_block * kBlockSize + t));
    }
    batch.query_starts.push_back(static_cast<std::int32_t>(batch.token_ids.size()));
    batch.context_lens.push_back(static_cast<std::int32_t>(shape.context + shape.new_tokens));
    batch.logit_rows.push_back(static_cast<std::int32_t>(batch.token_ids.size() - 1));
  }
  return batch;
}

struct Candidate {
  CpuTuning tuning;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};

class Tuner {
 public:
  Tuner(const EngineFile& engine, const Checkpoint& checkpoint, const BackendOptions& options,
        std::optional<DType> hold_as, std::vector<Shape> shapes, std::function<void(double)> progress)
      : engine_(engine),
        checkpoint_(checkpoint),
        options_(options),
        hold_as_(hold_as),
        shapes_(std::move(shapes)),
        progress_(std::move(progress)) {}

  Result<TuneResult> run();

 private:
  Result<Candidate> make(const CpuTuning& tuning) const;
  // Least milliseconds of each candidate, measured in turns so that a busy moment of the machine hits all.
  static std::vector<double> measure(const std::vector<Candidate>& candidates, const Shape& shape);
  // The tuning of the best candidate over some shapes; the first one is the present choice.
  Result<CpuTuning> best(const std::vector<CpuTuning>& tunings, std::span<const Shape> shapes);
  void step_done() { progress_(std::min(1.0, ++steps_done_ / kSteps)); }

  static constexpr double kSteps = 6;  // shapes measured: one for panels, two for parts, three at the end
  const EngineFile& engine_;
  const Checkpoint& checkpoint_;
  const BackendOptions& options_;
  const std::optional<DType> hold_as_;
  const std::vector<Shape> shapes_;  // decode of one, of many, a prompt
  const std::function<void(double)> progress_;
  int steps_done_ = 0;
};

Result<Candidate> Tuner::make(const CpuTuning& tuning) const {
  Candidate candidate;
  candidate.tuning = tuning;
  BackendOptions options = options_;
  options.tuning = tuning;
  QUIRE_TRY(candidate.backend, make_backend("cpu", options));
  LoadOptions load;
  load.engine = &engine_;
  load.weight_dtype = hold_as_;
  std::int64_t num_blocks = 1;
  for (const Shape& shape : shapes_) {
    load.max_model_len = std::max(load.max_model_len, shape.context + shape.new_tokens);
    num_blocks = std::max(num_blocks, shape.num_seqs * shape.blocks_per_seq());
  }
  QUIRE_TRY(candidate.model, load_model(checkpoint_, *candidate.backend, load));
  const DType kv = options.compute == ComputeMode::kF32 ? DType::kF32 : DType::kF16;
  QUIRE_RETURN_IF_ERROR(candidate.model->allocate_kv(num_blocks, kBlockSize, kv));
  return candidate;
}

std::vector<double> Tuner::measure(const std::vector<Candidate>& candidates, const Shape& shape) {
  const Batch batch = make_batch(shape, candidates[0].model->config().vocab_size);
  std::vector<double> least(candidates.size(), std::numeric_limits<double>::infinity());
  for (const Candidate& candidate : candidates) candidate.model->forward(batch);  // buffers, pages, clocks
  const auto begun = Clock::now();
  for (int round = 0; round < kMostRounds; ++round) {
    const double spent = std::chrono::duration<double>(Clock::now() - begun).count();
    if (round >= kLeastRounds && spent > kSecondsPerCandidate * static_cast<double>(candidates.size())) break;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const auto start = Clock::now();
      candidates[i].model->forward(batch);
      least[i] = std::min(least[i], std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
  }
  return least;
}

Result<CpuTuning> Tuner::best(const std::vector<CpuTuning>& tunings, std::span<const Shape> shapes) {
  std::vector<Candidate> candidates;
  for (const CpuTuning& tuning : tunings) {
    QUIRE_TRY(Candidate candidate, make(tuning));
    candidates.push_back(std::move(candidate));
  }
  std::vector<double> log_ratio(tunings.size(), 0.0);
  for (const Shape& shape : shapes) {
    const std::vector<double> times = measure(candidates, shape);
    for (std::size_t i = 0; i < times.size(); ++i) log_ratio[i] += std::log(times[i] / times[0]);
    step_done();
  }
  const auto least = std::min_element(log_ratio.begin(), log_ratio.end());
  if (*least > std::log(1 - kLeastGain) * static_cast<double>(shapes.size())) return tunings[0];
  return tunings[static_cast<std::size_t>(least - log_ratio.begin())];
}

Result<TuneResult> Tuner::run() {
  const CpuTuning defaults;
  std::vector<CpuTuning> candidates = {defaults};
  for (const std::int64_t rows : {16, 32, 64, 128, 256}) {
    CpuTuning tuning = defaults;
    tuning.panel_rows = rows;
    if (rows != defaults.panel_rows) candidates.push_back(tuning);
  }
  QUIRE_TRY(CpuTuning chosen, best(candidates, std::span(shapes_).subspan(2)));

  struct Parts {
    std::int64_t per_thread, min_bytes, max_bytes;
  };
  candidates = {chosen};
  for (const Parts& parts : {Parts{4, 32 << 10, 1 << 20}, Parts{4, 64 << 10, 512 << 10},
                             Parts{16, 16 << 10, 128 << 10}, Parts{8, 64 << 10, 2 << 20}}) {
    CpuTuning tuning = chosen;
    tuning.parts_per_thread = parts.per_thread;
    tuning.min_part_bytes = parts.min_bytes;
    tuning.max_part_bytes = parts.max_bytes;
    candidates.push_back(tuning);
  }
  QUIRE_TRY(chosen, best(candidates, std::span(shapes_).first(2)));

  // What was found in parts is compared as a whole, and given up if it gains nothing.
  std::vector<Candidate> two;
  for (const CpuTuning& tuning : {defaults, chosen}) {
    QUIRE_TRY(Candidate candidate, make(tuning));
    two.push_back(std::move(candidate));
  }
  TuneResult result;
  double log_ratio = 0;
  for (const Shape& shape : shapes_) {
    const std::vector<double> times = measure(two, shape);
    result.measurements.push_back({shape.name, shape.num_seqs * shape.new_tokens, times[0], times[1]});
    log_ratio += std::log(times[1] / times[0]);
    step_done();
  }
  result.tuning = chosen;
  if (log_ratio >= 0) {
    result.tuning = defaults;
    for (auto& measured : result.measurements) measured.tuned_ms = measured.default_ms;
  }
  return result;
}

}  // namespace

Result<TuneResult> tune(const EngineFile& engine, const Checkpoint& checkpoint, const BackendOptions& options,
                        std::optional<DType> hold_as, const TuneShapes& shapes,
                        const std::function<void(double)>& progress) {
  return Tuner(engine, checkpoint, options, hold_as,
               {{"decode, 1 sequence", 1, 1, shapes.context_len},
                {fmt::format("decode, {} sequences", shapes.batch_size), shapes.batch_size, 1,
                 shapes.context_len},
                {fmt::format("prompt of {} tokens", shapes.input_len), 1, shapes.input_len, 0}},
               progress)
      .run();
}

}  // namespace quire
