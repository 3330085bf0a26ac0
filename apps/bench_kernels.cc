// quire bench kernels [MODEL]: the peaks of this machine, and beside them its linear layers and attention,
// each answer checked against the reference backend.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/bench_cases.h"
#include "apps/bench_support.h"
#include "apps/commands.h"
#include "apps/interrupt.h"
#include "text/regex.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

struct KernelFlags {
  KernelCaseFlags cases;
  std::vector<std::string> modes;
  std::vector<std::string> isas;
  int threads = 0;
  double min_time = 0.05;
  std::string filter;
  std::string json;
  bool list = false;
};

// Largest difference from the reference, as a share of the answer's root mean square. Linear layers: sums in
// float32 against sums in float64. Attention: exponentials too.
constexpr double kLinearTolerance = 1e-4;
// Of the root mean square of the outputs, which are means of random values and so about a tenth of these; the
// kernel that computes in 16 bits is within 1e-3 of the values (attention_test.cc).
constexpr double kAttentionTolerance = 0.02;

// One line of the answer.
struct Measured {
  std::string name;
  double seconds = 0;
  double bytes = 0;  // of weights, or of keys and values
  double macs = 0;
  double bandwidth_peak = 0;
  double macs_peak = 0;
  double error = 0;
  std::string problem;  // "" = the answer is right
  Json details = Json::object();
};

// Copies of a weight that together do not fit in the last-level cache, as the layers of a model do not.
// Of a matrix so small that more would take long to pack; its figures are those of a cache.
constexpr std::size_t kMaxCopies = 512;
std::size_t cold_bytes() {
  const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return cache > 0 ? 2 * static_cast<std::size_t>(cache) : std::size_t{64} << 20;
}

// Seconds of one call: the best of several, over at least min_time and two calls.
double best_seconds(double min_time, const std::function<void()>& call) {
  call();
  double best = 1e30;
  double total = 0;
  for (int i = 0; i < 2 || total < min_time; ++i) {
    const Clock::time_point start = Clock::now();
    call();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

class KernelBench {
 public:
  explicit KernelBench(const KernelFlags& flags) : flags_(flags) {}
  Status run();

 private:
  Status choose();
  bool wanted(const std::string& name) const;
  std::string linear_name(const LinearCase& problem, std::int64_t num_rows, ComputeMode mode,
                          cpu::Isa isa) const;
  std::string attention_name(const AttentionCase& problem, cpu::Isa isa) const;
  Result<std::unique_ptr<Backend>> cpu_backend(ComputeMode mode, cpu::Isa isa) const;
  void measure_units();
  MachinePeaks& peaks_of(cpu::Isa isa, ComputeMode mode);
  Status measure_linear(const LinearCase& problem, ComputeMode mode, cpu::Isa isa, Backend* backend);
  Status measure_attention(const AttentionCase& problem, cpu::Isa isa, Backend* backend);
  // The least relative error against the reference in this mode, or in one that rounds less; sets `rounding`.
  Result<double> linear_error(const BenchWeights& weights, const LinearCase& problem,
                              const PackedWeight& packed, ComputeMode mode, Backend* backend,
                              std::string* rounding) const;
  void add(Measured result);
  void step_done() { progress_->update(static_cast<double>(++num_done_) / static_cast<double>(num_steps_)); }
  std::string text() const;
  Json json() const;

  const KernelFlags& flags_;
  std::shared_ptr<const Regex> filter_;
  std::vector<cpu::Isa> isas_;
  std::vector<ComputeMode> modes_;
  KernelCases cases_;
  int num_threads_ = 1;
  double read_bandwidth_ = 0;
  std::vector<std::pair<std::string, MachinePeaks>> peaks_;  // by unit
  Json peak_list_ = Json::array();
  std::vector<std::vector<std::string>> peak_rows_;
  std::vector<Measured> results_;
  std::vector<std::string> skipped_;
  std::unique_ptr<WorkProgress> progress_;
  std::size_t num_done_ = 0;
  std::size_t num_steps_ = 1;
};

bool KernelBench::wanted(const std::string& name) const {
  bool found = filter_ == nullptr;
  if (!found) filter_->find_all(name, [&](std::size_t, std::size_t) { found = true; });
  return found;
}

std::string KernelBench::linear_name(const LinearCase& problem, std::int64_t num_rows, ComputeMode mode,
                                     cpu::Isa isa) const {
  return fmt::format("linear/{}/{}x{}/{}/{}/m{}", problem.layout.name, problem.n, problem.k,
                     compute_mode_name(mode), cpu::isa_name(isa), num_rows);
}

std::string KernelBench::attention_name(const AttentionCase& problem, cpu::Isa isa) const {
  const std::string work = problem.is_prefill
                               ? fmt::format("prefill/{}", problem.context)
                               : fmt::format("decode/{}x{}", problem.context, problem.num_seqs);
  return fmt::format("attention/{}/{}x{}x{}/{}/{}", work, problem.heads.num_heads, problem.heads.num_kv_heads,
                     problem.heads.head_dim, dtype_name(problem.kv), cpu::isa_name(isa));
}

Result<std::unique_ptr<Backend>> KernelBench::cpu_backend(ComputeMode mode, cpu::Isa isa) const {
  BackendOptions options;
  options.compute = mode;
  options.num_threads = num_threads_;
  options.isa = std::string(cpu::isa_name(isa));
  return make_backend("cpu", options);
}

// What the flags name, checked.
Status KernelBench::choose() {
  num_threads_ = flags_.threads > 0 ? flags_.threads : detect_cpu_budget().num_usable;
  if (!flags_.filter.empty()) {
    auto compiled = Regex::compile(flags_.filter, "--filter");
    if (!compiled.ok()) return invalid(compiled.error().message, "filter");
    filter_ = *compiled;
  }
  const cpu::CpuFeatures features = cpu::detect_cpu_features();
  if (flags_.isas == std::vector<std::string>{"all"}) {
    for (int i = 0;; ++i) {
      const auto isa = static_cast<cpu::Isa>(i);
      if (cpu::isa_name(isa) == "?") break;
      const std::string refusal = cpu::isa_refusal(isa, features);
      if (refusal.empty()) {
        isas_.push_back(isa);
      } else {
        skipped_.push_back(fmt::format("{}: {}", cpu::isa_name(isa), refusal));
      }
    }
  } else if (flags_.isas.empty()) {
    QUIRE_TRY(const cpu::Isa isa, isa_in_use());
    isas_ = {isa};
  } else {
    for (const std::string& name : flags_.isas) {
      QUIRE_TRY(const cpu::IsaChoice choice, cpu::choose_isa(features, name, "--isa"));
      isas_.push_back(choice.isa);
    }
  }
  for (const ComputeMode mode : {ComputeMode::kF32, ComputeMode::kBf16, ComputeMode::kInt8}) {
    const std::string name(compute_mode_name(mode));
    if (flags_.modes.empty() ||
        std::find(flags_.modes.begin(), flags_.modes.end(), name) != flags_.modes.end()) {
      modes_.push_back(mode);
    }
  }
  QUIRE_TRY(cases_, read_kernel_cases(flags_.cases));
  skipped_.insert(skipped_.end(), cases_.skipped.begin(), cases_.skipped.end());
  return {};
}

// Every unit of this machine with one thread and with all.
void KernelBench::measure_units() {
  std::vector<int> counts = {1};
  if (num_threads_ > 1) counts.push_back(num_threads_);
  const auto note = [&](const std::string& name, const std::string& rate, const std::string& tops,
                        Json details) {
    peak_rows_.push_back({name, rate, tops});
    details["name"] = name;
    peak_list_.push_back(std::move(details));
  };
  for (const int threads : counts) {
    const std::string suffix = fmt::format("/{} thread{}", threads, threads == 1 ? "" : "s");
    if (wanted("peak/read" + suffix)) {
      const double rate = cpu::peaks::measure_read_bandwidth(threads, 0.5);
      note("peak/read" + suffix, fmt::format("{:.1f} GB/s", rate / 1e9), "",
           {{"threads", threads}, {"gb_per_second", rate / 1e9}});
      if (threads == num_threads_) read_bandwidth_ = rate;
    }
    for (const cpu::peaks::Unit& unit : cpu::peaks::units()) {
      const std::string name = fmt::format("peak/{}/{}, {}{}", cpu::peaks::operand_name(unit.operand),
                                           unit.isa, unit.instruction, suffix);
      if (!wanted(name)) continue;
      const double rate = cpu::peaks::measure_macs(unit, threads, 0.2);
      note(name, fmt::format("{:.1f} GMAC/s", rate / 1e9), fmt::format("{:.3f} TOPS", 2 * rate / 1e12),
           {{"threads", threads},
            {"operand", std::string(cpu::peaks::operand_name(unit.operand))},
            {"isa", unit.isa},
            {"instruction", unit.instruction},
            {"gmac_per_second", rate / 1e9}});
    }
    step_done();
  }
}

MachinePeaks& KernelBench::peaks_of(cpu::Isa isa, ComputeMode mode) {
  const cpu::peaks::Unit unit = cpu::peaks::unit_for(isa, mode, cpu::isa_name(isa) == "amx");
  const std::string key = unit.isa + unit.instruction;
  for (auto& [known, peaks] : peaks_) {
    if (known == key) return peaks;
  }
  MachinePeaks peaks;
  peaks.unit = unit;
  peaks.macs = cpu::peaks::measure_macs(unit, num_threads_, 0.2);
  if (read_bandwidth_ == 0) read_bandwidth_ = cpu::peaks::measure_read_bandwidth(num_threads_, 0.5);
  peaks.read_bandwidth = read_bandwidth_;
  peaks_.emplace_back(key, peaks);
  return peaks_.back().second;
}

void KernelBench::add(Measured result) {
  result.details["seconds"] = result.seconds;
  if (result.bytes > 0) {
    const double rate = result.bytes / result.seconds;
    result.details["gb_per_second"] = rate / 1e9;
    result.details["share_of_read_peak"] = rate / result.bandwidth_peak;
  }
  const double rate = result.macs / result.seconds;
  result.details["gops"] = 2 * rate / 1e9;
  result.details["share_of_compute_peak"] = rate / result.macs_peak;
  result.details["error"] = result.error;
  result.details["right"] = result.problem.empty();
  results_.push_back(std::move(result));
}

Result<double> KernelBench::linear_error(const BenchWeights& weights, const LinearCase& problem,
                                         const PackedWeight& packed, ComputeMode mode, Backend* backend,
                                         std::string* rounding) const {
  // Two rows of activations, and features from the whole width.
  constexpr std::int64_t kRows = 2;
  constexpr std::int64_t kFeatures = 24;
  std::vector<std::int64_t> features;
  for (std::int64_t i = 0; i < std::min(kFeatures, problem.n); ++i) {
    features.push_back(i * (problem.n - 1) / std::max<std::int64_t>(1, std::min(kFeatures, problem.n) - 1));
  }
  const std::vector<float> x = bench_activations(kRows * problem.k, 3);
  std::vector<float> all(static_cast<std::size_t>(kRows * problem.n));
  LinearTarget target;
  target.weight = &packed;
  target.out = all.data();
  backend->linear({x.data(), kRows}, {&target, 1});
  std::vector<float> got;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (const std::int64_t feature : features) {
      got.push_back(all[static_cast<std::size_t>(row * problem.n + feature)]);
    }
  }
  const BenchWeights picked = weights.pick(features);
  double best = HUGE_VAL;
  for (const ComputeMode rounded : {ComputeMode::kInt8, ComputeMode::kBf16, ComputeMode::kF32}) {
    if (rounded > mode) continue;
    BackendOptions options;
    options.compute = rounded;
    options.num_threads = 1;
    QUIRE_TRY(const std::unique_ptr<Backend> reference, make_backend("ref", options));
    auto oracle = picked.is_grouped ? reference->pack(picked.grouped) : reference->pack(picked.floats);
    if (!oracle.ok()) return oracle.error();
    std::vector<float> want(got.size());
    target.weight = oracle->get();
    target.out = want.data();
    reference->linear({x.data(), kRows}, {&target, 1});
    const double error = relative_error(got, want);
    if (error >= best) continue;
    best = error;
    *rounding = std::string(compute_mode_name(rounded));
  }
  return best;
}

Status KernelBench::measure_linear(const LinearCase& problem, ComputeMode mode, cpu::Isa isa,
                                   Backend* backend) {
  std::vector<std::int64_t> row_counts;
  for (const std::int64_t count : problem.row_counts) {
    if (wanted(linear_name(problem, count, mode, isa))) row_counts.push_back(count);
  }
  if (row_counts.empty()) return {};
  const MachinePeaks peaks = peaks_of(isa, mode);
  const BenchWeights weights = make_bench_weights(problem);
  std::vector<std::unique_ptr<PackedWeight>> copies;
  for (std::size_t bytes = 0; bytes < cold_bytes() && copies.size() < kMaxCopies;
       bytes += copies.back()->num_bytes()) {
    auto packed = weights.is_grouped ? backend->pack(weights.grouped) : backend->pack(weights.floats);
    if (!packed.ok()) return packed.error();
    copies.push_back(std::move(packed).value());
  }
  std::string rounding;
  QUIRE_TRY(const double error, linear_error(weights, problem, *copies.front(), mode, backend, &rounding));
  const std::int64_t most = *std::max_element(row_counts.begin(), row_counts.end());
  const std::vector<float> x = bench_activations(most * problem.k, 2);
  std::vector<float> out(static_cast<std::size_t>(most * problem.n));
  for (const std::int64_t num_rows : row_counts) {
    if (take_interrupt()) return make_error(ErrorCode::kCancelled, "interrupted");
    // With few rows a call is short and all copies are used in turn.
    const std::size_t calls = num_rows <= 16 ? copies.size() : 1;
    std::size_t next = 0;
    Measured result;
    result.name = linear_name(problem, num_rows, mode, isa);
    result.seconds = best_seconds(flags_.min_time,
                                  [&] {
                                    for (std::size_t call = 0; call < calls; ++call) {
                                      LinearTarget target;
                                      target.weight = copies[next++ % copies.size()].get();
                                      target.out = out.data();
                                      backend->linear({x.data(), num_rows}, {&target, 1});
                                    }
                                  }) /
                     static_cast<double>(calls);
    result.bytes = static_cast<double>(copies.front()->num_bytes());
    result.macs = static_cast<double>(num_rows) * static_cast<double>(problem.n * problem.k);
    result.bandwidth_peak = peaks.read_bandwidth;
    result.macs_peak = peaks.macs;
    result.error = error;
    if (!(error < kLinearTolerance)) result.problem = "WRONG ANSWER";
    result.details = {{"op", "linear"},
                      {"layer", problem.layer},
                      {"layout", problem.layout.name},
                      {"packed", copies.front()->layout_name()},
                      {"n", problem.n},
                      {"k", problem.k},
                      {"m", num_rows},
                      {"compute", std::string(compute_mode_name(mode))},
                      {"rounding", rounding},
                      {"isa", std::string(cpu::isa_name(isa))},
                      {"weight_bytes", copies.front()->num_bytes()},
                      {"peak_instruction", peaks.unit.instruction}};
    add(std::move(result));
  }
  return {};
}

Status KernelBench::measure_attention(const AttentionCase& problem, cpu::Isa isa, Backend* backend) {
  if (take_interrupt()) return make_error(ErrorCode::kCancelled, "interrupted");
  const std::string name = attention_name(problem, isa);
  if (!wanted(name)) return {};
  const AttentionHeads& heads = problem.heads;
  const double kv_values =
      2.0 * static_cast<double>(heads.num_kv_heads * heads.head_dim * problem.context * problem.num_seqs);
  const double bytes = kv_values * static_cast<double>(dtype_bytes(problem.kv));
  // As many layers as the caches cannot hold, so that keys and values come from memory as in a model.
  const std::int64_t num_layers =
      problem.is_prefill ? 1
                         : std::clamp<std::int64_t>(
                               static_cast<std::int64_t>(static_cast<double>(cold_bytes()) / bytes), 1, 512);
  AttentionData data(problem, num_layers);
  QUIRE_TRY(const std::unique_ptr<KvCache> cache, backend->make_kv_cache(data.spec()));
  data.fill(backend, cache.get());
  BackendOptions options;
  QUIRE_TRY(const std::unique_ptr<Backend> reference, make_backend("ref", options));
  KvSpec one_layer = data.spec();
  one_layer.num_layers = 1;
  QUIRE_TRY(const std::unique_ptr<KvCache> oracle, reference->make_kv_cache(one_layer));
  data.fill(reference.get(), oracle.get());
  data.run(backend, *cache, 0);

  const MachinePeaks peaks = peaks_of(isa, ComputeMode::kF32);
  Measured result;
  result.name = name;
  result.error = data.error(reference.get(), *oracle);
  if (!(result.error < kAttentionTolerance)) result.problem = "WRONG ANSWER";
  result.seconds = best_seconds(flags_.min_time,
                                [&] {
                                  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
                                    data.run(backend, *cache, layer);
                                  }
                                }) /
                   static_cast<double>(num_layers);
  // Two multiply-adds per value of a head and visible position.
  const auto context = static_cast<double>(problem.context);
  const double visible = problem.is_prefill ? context * (context + 1) / 2 : context;
  result.macs = 2.0 * static_cast<double>(heads.num_heads * heads.head_dim * problem.num_seqs) * visible;
  if (!problem.is_prefill) result.bytes = bytes;  // a prompt reads its keys many times, from the caches
  result.bandwidth_peak = peaks.read_bandwidth;
  result.macs_peak = peaks.macs;
  result.details = {{"op", "attention"},
                    {"work", problem.is_prefill ? "prefill" : "decode"},
                    {"model", heads.model},
                    {"num_heads", heads.num_heads},
                    {"num_kv_heads", heads.num_kv_heads},
                    {"head_dim", heads.head_dim},
                    {"context", problem.context},
                    {"num_seqs", problem.num_seqs},
                    {"kv_dtype", std::string(dtype_name(problem.kv))},
                    {"isa", std::string(cpu::isa_name(isa))},
                    {"peak_instruction", peaks.unit.instruction}};
  add(std::move(result));
  return {};
}

Status KernelBench::run() {
  QUIRE_RETURN_IF_ERROR(check_writable(flags_.json));
  QUIRE_RETURN_IF_ERROR(choose());
  if (flags_.list) {
    for (const cpu::Isa isa : isas_) {
      for (const ComputeMode mode : modes_) {
        for (const LinearCase& problem : cases_.linear) {
          for (const std::int64_t count : problem.row_counts) {
            const std::string name = linear_name(problem, count, mode, isa);
            if (wanted(name)) fmt::print("{}\n", name);
          }
        }
      }
      for (const AttentionCase& problem : cases_.attention) {
        if (wanted(attention_name(problem, isa))) fmt::print("{}\n", attention_name(problem, isa));
      }
    }
    return {};
  }
  catch_interrupts();
  progress_ = std::make_unique<WorkProgress>("measuring");
  num_steps_ = 2 + isas_.size() * (modes_.size() * cases_.linear.size() + cases_.attention.size());
  measure_units();
  for (const cpu::Isa isa : isas_) {
    for (const ComputeMode mode : modes_) {
      // One at a time: the threads of another would be in the way.
      QUIRE_TRY(const std::unique_ptr<Backend> backend, cpu_backend(mode, isa));
      for (const LinearCase& problem : cases_.linear) {
        QUIRE_RETURN_IF_ERROR(measure_linear(problem, mode, isa, backend.get()));
        step_done();
      }
    }
    QUIRE_TRY(const std::unique_ptr<Backend> backend, cpu_backend(modes_.back(), isa));
    for (const AttentionCase& problem : cases_.attention) {
      QUIRE_RETURN_IF_ERROR(measure_attention(problem, isa, backend.get()));
      step_done();
    }
  }
  progress_.reset();
  // A machine with neighbours has better and worse moments: the best of before and after is the yardstick.
  if (!results_.empty()) {
    read_bandwidth_ = std::max(read_bandwidth_, cpu::peaks::measure_read_bandwidth(num_threads_, 0.5));
  }
  for (Measured& result : results_) {
    result.bandwidth_peak = read_bandwidth_;
    if (result.bytes > 0) {
      result.details["share_of_read_peak"] = result.bytes / result.seconds / read_bandwidth_;
    }
  }
  if (results_.empty() && peak_list_.empty()) {
    return invalid(fmt::format("--filter {}: no name matches; --list shows them all", flags_.filter),
                   "filter");
  }
  fmt::print("{}", text());
  QUIRE_RETURN_IF_ERROR(write_json(flags_.json, json()));
  const auto num_wrong = std::count_if(results_.begin(), results_.end(),
                                       [](const Measured& result) { return !result.problem.empty(); });
  if (num_wrong > 0) {
    return make_error(
        ErrorCode::kInternal,
        fmt::format("{} of {} answers are wrong: they differ from the reference by more than {:g} "
                    "(linear) or {:g} (attention) of their root mean square",
                    num_wrong, results_.size(), kLinearTolerance, kAttentionTolerance));
  }
  return {};
}

std::string KernelBench::text() const {
  std::string out = fmt::format("{}, {} threads\n\n", cpu_model_name(), num_threads_);
  Table peaks({"peak", "", ""});
  for (const auto& row : peak_rows_) peaks.add(row);
  if (!peak_rows_.empty()) out += peaks.text();
  for (const std::string& line : skipped_) out += fmt::format("skipped: {}\n", line);
  if (results_.empty()) return out;
  Table table({"kernel", "us", "GB/s", "of read peak", "GOPS", "of compute peak", "instruction", ""});
  for (const Measured& result : results_) {
    const double bandwidth = result.bytes / result.seconds;
    const double rate = result.macs / result.seconds;
    table.add({result.name, fmt::format("{:.1f}", result.seconds * 1e6),
               result.bytes > 0 ? fmt::format("{:.1f}", bandwidth / 1e9) : "",
               result.bytes > 0 ? percent_text(bandwidth / result.bandwidth_peak) : "",
               fmt::format("{:.1f}", 2 * rate / 1e9), percent_text(rate / result.macs_peak),
               result.details["peak_instruction"].get<std::string>(), result.problem});
  }
  return out + "\n" + table.text() +
         fmt::format(
             "\nA multiply-add is two operations. Read peak in this run: {:.1f} GB/s. Answers checked "
             "against the reference.\n",
             read_bandwidth_ / 1e9);
}

Json KernelBench::json() const {
  Json out;
  out["machine"] = describe_machine(isas_.back(), num_threads_);
  out["peaks"] = peak_list_;
  out["read_gb_per_second"] = read_bandwidth_ / 1e9;
  Json compute = Json::array();
  for (const auto& [key, peaks] : peaks_) compute.push_back(peaks.json());
  out["compute_peaks"] = compute;
  out["skipped"] = skipped_;
  Json results = Json::array();
  for (const Measured& result : results_) {
    Json entry = {{"name", result.name}};
    for (const auto& [key, value] : result.details.items()) entry[key] = value;
    results.push_back(std::move(entry));
  }
  out["results"] = results;
  return out;
}

}  // namespace

void add_bench_kernels_command(CLI::App& bench, int* exit_code) {
  CLI::App* command = bench.add_subcommand(
      "kernels", "The peaks of this machine, and its linear layers and attention beside them");
  auto flags = std::make_shared<KernelFlags>();
  command->add_option(
      "MODEL", flags->cases.model,
      "Time the shapes and layouts of this model's matrices: a name of the catalogue, a GGUF file "
      "or a checkpoint folder");
  command
      ->add_option("--shapes", flags->cases.shapes,
                   fmt::format("Built-in shapes: {}, or all; default {} without a MODEL",
                               fmt::join(built_in_models(), ", "), kDefaultBenchShapes))
      ->delimiter(',');
  command->add_option("--problems", flags->cases.problems,
                      "A file of linear layers, e.g. a line \"int4 g32 zero8 f16 n=8960 k=1536 : 1 16 512\"");
  command
      ->add_option(
          "--layouts", flags->cases.layouts,
          fmt::format("Layouts for built-in shapes; default {}", fmt::join(default_bench_layouts(), ",")))
      ->delimiter(',');
  command
      ->add_option("--num-rows,-m", flags->cases.row_counts,
                   fmt::format("Rows of activations; default {}", fmt::join(default_bench_rows(), ",")))
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--compute", flags->modes, "Compute modes: f32, bf16, int8; default all three")
      ->delimiter(',')
      ->check(CLI::IsMember({"f32", "bf16", "int8"}));
  command
      ->add_option("--isa", flags->isas,
                   "Instruction sets, or all; default the highest that runs here, or QUIRE_ISA")
      ->delimiter(',');
  command->add_option("--kv-cache-dtype", flags->cases.kv_dtypes, "Types of keys and values: f16, bf16, f32")
      ->delimiter(',')
      ->check(CLI::IsMember({"f16", "bf16", "f32"}))
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "Threads that compute; 0 = all CPUs this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_option("--min-time", flags->min_time, "Seconds for which each is repeated at least")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command->add_option("--filter", flags->filter, "Only names in which this regular expression is found");
  command->add_flag("--list", flags->list, "Print the names and end");
  command->add_option("--json,--output-json", flags->json, "Write the figures to this file");
  command->callback([flags, exit_code] {
    const Status status = KernelBench(*flags).run();
    *exit_code = status.ok() ? 0 : report_error(status.error());
  });
}

}  // namespace quire
