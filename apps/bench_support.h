// Purpose: what the subcommands of `quire bench` have in common: the machine and its peaks, a batch of
// requests through the engine with its times, tables and JSON. In: flags, a loaded model. Out: figures.
// Thread: the main thread; the engine's reports arrive on its own. Out of scope: what each subcommand
// measures.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "api/json.h"
#include "apps/app_support.h"
#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/peaks/peaks.h"
#include "base/result.h"
#include "engine/engine.h"

namespace quire {

// Each adds one subcommand of `quire bench`; its callback stores the exit code.
void add_bench_latency_command(CLI::App& bench, int* exit_code);
void add_bench_throughput_command(CLI::App& bench, int* exit_code);
void add_bench_kernels_command(CLI::App& bench, int* exit_code);

// What this machine can do at best with the units that one tier and compute mode use; measured.
struct MachinePeaks {
  cpu::peaks::Unit unit;
  double macs = 0;            // multiply-adds per second, all threads
  double read_bandwidth = 0;  // bytes per second, all threads
  Json json() const;
  std::string text() const;  // one line
};
// Takes about half a second. isa: the tier in use.
MachinePeaks measure_peaks(cpu::Isa isa, ComputeMode mode, int num_threads);

// Processor, threads, instruction set, system, version, date.
Json describe_machine(cpu::Isa isa, int num_threads);
std::string cpu_model_name();

// Lines of columns, the first one to the left and the others to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};
std::string percent_text(double share);  // "87.3%"

// The value below which `percent` of them lie, interpolated between neighbours. values: not empty.
double percentile(std::vector<double> values, double percent);
double mean(const std::vector<double>& values);

// Whether this file could be written: asked before minutes of work. "" is fine: no file is wanted.
Status check_writable(const std::string& path);
Status write_json(const std::string& path, const Json& value);

// A bar on stderr once the work has lasted two seconds.
class WorkProgress {
 public:
  explicit WorkProgress(const std::string& label) : bar_(progress_bar(label)) {}
  ~WorkProgress() {
    if (shown_) bar_(1.0);
  }
  WorkProgress(const WorkProgress&) = delete;
  WorkProgress& operator=(const WorkProgress&) = delete;
  void update(double share);

 private:
  std::function<void(double)> bar_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  bool shown_ = false;
};

// A step as the engine reports it, and what the backend's operations took in it.
struct LoggedStep {
  StepReport report;
  OpTimes ops;
};

class StepLog {
 public:
  std::function<void(const StepReport&)> observer();
  // From now on steps come with the times of this backend's operations.
  void watch(const Backend* backend);
  std::size_t size();
  // Those since `first`, once there are `count` in all (the report of a step follows its tokens).
  std::vector<LoggedStep> since(std::size_t first, std::size_t count);

 private:
  std::mutex mutex_;
  std::vector<LoggedStep> steps_;
  const Backend* backend_ = nullptr;
  OpTimes last_;
};

struct BenchRequest {
  std::vector<std::int32_t> prompt;
  std::int64_t output_len = 0;
  std::uint64_t seed = 0;
};
struct BenchAnswer {
  std::vector<std::int32_t> tokens;
  double first_token = 0;  // seconds from submission to the first token
  double decode = 0;       // from there to the last
};
struct BatchRun {
  double seconds = 0;  // until the last token of all
  std::vector<BenchAnswer> answers;
  std::vector<LoggedStep> steps;
  double first_tokens() const;  // when the last of them had its first token
};

// Sends requests through the engine of a loaded model, all at once, and waits. Output goes on behind the end
// token. detokenize: each token becomes text as it comes, as a server would make it.
class BatchRunner {
 public:
  BatchRunner(LoadedModel& model, StepLog& log, double temperature, bool detokenize)
      : model_(model), log_(log), temperature_(temperature), detokenize_(detokenize) {}
  // on_token: called after each token with the number so far.
  Result<BatchRun> run(const std::vector<BenchRequest>& requests,
                       const std::function<void(std::int64_t)>& on_token = {});

 private:
  LoadedModel& model_;
  StepLog& log_;
  double temperature_;
  bool detokenize_;
};

// The same tokens in both, else an error that names the first difference. where: "iteration 3", say.
Status check_same_tokens(const std::vector<BenchAnswer>& got, const std::vector<BenchAnswer>& want,
                         const std::string& where);

// Ordinary tokens (no control tokens) drawn at random.
class PromptMaker {
 public:
  PromptMaker(const Tokenizer& tokenizer, std::int64_t vocab_size, std::uint64_t seed);
  std::vector<std::int32_t> make(std::int64_t length);
  std::int64_t uniform(std::int64_t least, std::int64_t most);  // both included

 private:
  std::vector<std::int32_t> ids_;
  std::mt19937_64 random_;
};

// What one token costs, from the model's sizes.
struct ModelCost {
  double layer_macs = 0;  // of the linear layers, per token
  double head_macs = 0;   // of the output layer, per row of logits
  double weight_bytes =
      0;  // read by each step; an embedding that is not also the output layer is not counted
  double kv_token_bytes = 0;  // keys and values of one token over all layers
  Json json() const;
};
ModelCost cost_of(const LoadedModel& model);

// Sums over steps; see StepReport and OpTimes.
struct StepSums {
  std::int64_t num_steps = 0;
  std::int64_t num_tokens = 0;
  std::int64_t num_seqs = 0;
  double seconds = 0;
  double linear_seconds = 0;
  double attention_seconds = 0;
  double sample_seconds = 0;
  void add(const LoggedStep& step);
  void add(const StepSums& other);
  // Shares of the steps' time: linear, attention, sampling, rest.
  Json shares() const;
};

// The tier that the cpu backend uses here (QUIRE_ISA pins it).
Result<cpu::Isa> isa_in_use();
int threads_in_use(const ModelFlags& flags);

}  // namespace quire
