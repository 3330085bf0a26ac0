#include "apps/bench_support.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <sys/utsname.h>

#include "apps/interrupt.h"
#include "model/config.h"
#include "text/detokenizer.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A peak is measured over this long.
constexpr double kPeakSeconds = 0.15;
// No bar for work that is over before a reader has found it.
constexpr double kBarAfterSeconds = 2.0;

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::size_t memory_of_machine() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::size_t kilobytes = 0;
  while (file >> name >> kilobytes) {
    if (name == "MemTotal:") return kilobytes * 1024;
    file.ignore(64, '\n');
  }
  return 0;
}

}  // namespace

std::string cpu_model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos && line.starts_with("model name")) return line.substr(colon + 2);
  }
  return "unknown";
}

Json describe_machine(cpu::Isa isa, int num_threads) {
  Json out;
  out["cpu"] = cpu_model_name();
  const CpuBudget cpus = detect_cpu_budget();
  out["num_cpus_online"] = cpus.num_online;
  out["num_cpus_usable"] = cpus.num_usable;
  out["memory_bytes"] = memory_of_machine();
  out["isa"] = std::string(cpu::isa_name(isa));
  out["threads"] = num_threads;
  utsname system{};
  if (::uname(&system) == 0) out["system"] = fmt::format("{} {}", system.sysname, system.release);
  out["version"] = QUIRE_VERSION;
  out["date"] = utc_now();
  return out;
}

Json MachinePeaks::json() const {
  Json out;
  out["read_gb_per_second"] = read_bandwidth / 1e9;
  out["gmac_per_second"] = macs / 1e9;
  out["tops"] = 2 * macs / 1e12;
  out["operand"] = std::string(cpu::peaks::operand_name(unit.operand));
  out["instruction"] = unit.instruction;
  return out;
}

std::string MachinePeaks::text() const {
  return fmt::format("Peaks in this run: {:.1f} GB/s read; {:.1f} GMAC/s = {:.2f} TOPS of {} ({})\n",
                     read_bandwidth / 1e9, macs / 1e9, 2 * macs / 1e12,
                     cpu::peaks::operand_name(unit.operand), unit.instruction);
}

MachinePeaks measure_peaks(cpu::Isa isa, ComputeMode mode, int num_threads) {
  MachinePeaks peaks;
  peaks.unit = cpu::peaks::unit_for(isa, mode, cpu::isa_name(isa) == "amx");
  peaks.macs = cpu::peaks::measure_macs(peaks.unit, num_threads, kPeakSeconds);
  peaks.read_bandwidth = cpu::peaks::measure_read_bandwidth(num_threads, kPeakSeconds);
  return peaks;
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string percent_text(double share) {
  return fmt::format("{:.1f}%", 100 * share);
}

double percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  const double at = percent / 100 * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - std::floor(at)) * (values[high] - values[low]);
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

Status check_writable(const std::string& path) {
  if (path.empty()) return {};
  std::error_code ignored;
  const bool existed = std::filesystem::exists(path, ignored);
  const bool writable = static_cast<bool>(std::ofstream(path, std::ios::app));
  if (!existed) std::filesystem::remove(path, ignored);
  if (!writable) return invalid(fmt::format("cannot write {}: name a file in a folder that exists", path));
  return {};
}

Status write_json(const std::string& path, const Json& value) {
  if (path.empty()) return {};
  std::ofstream file(path, std::ios::trunc);
  file << value.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  file.close();
  if (!file) return make_error(ErrorCode::kIo, fmt::format("cannot write {}", path));
  return {};
}

void WorkProgress::update(double share) {
  if (seconds_since(begun_) < kBarAfterSeconds) return;
  shown_ = true;
  bar_(std::min(share, 0.999));  // the bar vanishes at 1, which is for the end
}

std::function<void(const StepReport&)> StepLog::observer() {
  return [this](const StepReport& step) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const OpTimes now = backend_ == nullptr ? OpTimes{} : backend_->op_times();
    steps_.push_back({step,
                      {now.linear_ns - last_.linear_ns, now.attention_ns - last_.attention_ns,
                       now.other_ns - last_.other_ns}});
    last_ = now;
  };
}

void StepLog::watch(const Backend* backend) {
  const std::lock_guard<std::mutex> lock(mutex_);
  backend_ = backend;
  last_ = backend->op_times();
}

std::size_t StepLog::size() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return steps_.size();
}

std::vector<LoggedStep> StepLog::since(std::size_t first, std::size_t count) {
  // The last report comes microseconds after the last token.
  const Clock::time_point start = Clock::now();
  while (size() < count && seconds_since(start) < 1) std::this_thread::yield();
  const std::lock_guard<std::mutex> lock(mutex_);
  return {steps_.begin() + static_cast<std::ptrdiff_t>(std::min(first, steps_.size())), steps_.end()};
}

double BatchRun::first_tokens() const {
  double last = 0;
  for (const BenchAnswer& answer : answers) last = std::max(last, answer.first_token);
  return last;
}

Result<BatchRun> BatchRunner::run(const std::vector<BenchRequest>& requests,
                                  const std::function<void(std::int64_t)>& on_token) {
  Engine& engine = *model_.engine;
  const std::size_t first_step = log_.size();
  const std::uint64_t steps_before = engine.stats().num_steps;
  auto stream = std::make_shared<TokenStream>(static_cast<std::int32_t>(requests.size()));
  std::vector<TokenRequest> batch;
  std::vector<Detokenizer> texts;
  for (const BenchRequest& request : requests) {
    TokenRequest out;
    out.id = fmt::format("bench-{}", batch.size());
    out.prompt = request.prompt;
    out.params.temperature = temperature_;
    out.params.seed = request.seed;
    out.params.max_tokens = request.output_len;
    out.params.ignore_eos = true;
    out.stream = stream;
    out.choice = static_cast<std::int32_t>(batch.size());
    batch.push_back(std::move(out));
    if (detokenize_) texts.emplace_back(*model_.tokenizer, true, false);
  }
  BatchRun run;
  run.answers.resize(requests.size());
  std::size_t num_text_bytes = 0;
  std::int64_t num_tokens = 0;
  const Clock::time_point start = Clock::now();
  QUIRE_RETURN_IF_ERROR(engine.submit_all(std::move(batch)));
  for (std::size_t num_open = requests.size(); num_open > 0;) {
    if (take_interrupt()) {
      stream->cancel_all();
      return make_error(ErrorCode::kCancelled, "interrupted");
    }
    const std::optional<TokenEvent> event = stream->next(std::chrono::milliseconds(100));
    if (!event) continue;
    const auto choice = static_cast<std::size_t>(event->choice);
    BenchAnswer& answer = run.answers[choice];
    if (event->token) {
      answer.tokens.push_back(*event->token);
      if (detokenize_) num_text_bytes += texts[choice].push(*event->token).size();
      if (on_token) on_token(++num_tokens);
    }
    if (event->finish == FinishReason::kNone) continue;
    --num_open;
    answer.first_token = event->times.queued + event->times.prefill;
    answer.decode = event->times.decode;
    if (event->finish == FinishReason::kError) {
      stream->cancel_all();
      return event->error.value_or(make_error(ErrorCode::kInternal, "a request failed"));
    }
    if (static_cast<std::int64_t>(answer.tokens.size()) != requests[choice].output_len) {
      return make_error(ErrorCode::kInternal, fmt::format("request {} ended after {} of {} tokens", choice,
                                                          answer.tokens.size(), requests[choice].output_len));
    }
  }
  run.seconds = seconds_since(start);
  volatile std::size_t kept = num_text_bytes;  // the text is made although nobody reads it
  (void)kept;
  const std::uint64_t num_steps = engine.stats().num_steps - steps_before;
  run.steps = log_.since(first_step, first_step + static_cast<std::size_t>(num_steps));
  return run;
}

Status check_same_tokens(const std::vector<BenchAnswer>& got, const std::vector<BenchAnswer>& want,
                         const std::string& where) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto& a = got[i].tokens;
    const auto& b = want[i].tokens;
    if (a == b) continue;
    const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    return make_error(
        ErrorCode::kInternal,
        fmt::format(
            "wrong answer: {}, sequence {}, output token {}: {} instead of {}; answers must not depend "
            "on the batch (docs/flow.md, Exactness)",
            where, i, at - a.begin(), at == a.end() ? -1 : *at, other == b.end() ? -1 : *other));
  }
  return {};
}

PromptMaker::PromptMaker(const Tokenizer& tokenizer, std::int64_t vocab_size, std::uint64_t seed)
    : random_(seed) {
  for (std::int64_t id = 0; id < vocab_size; ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (!tokenizer.is_special(token)) ids_.push_back(token);
  }
  if (ids_.empty()) ids_.push_back(0);
}

std::vector<std::int32_t> PromptMaker::make(std::int64_t length) {
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < length; ++i) out.push_back(ids_[random_() % ids_.size()]);
  return out;
}

std::int64_t PromptMaker::uniform(std::int64_t least, std::int64_t most) {
  const auto count = static_cast<std::uint64_t>(most - least + 1);
  return least + static_cast<std::int64_t>(random_() % count);
}

Json ModelCost::json() const {
  return {{"linear_macs_per_token", layer_macs},
          {"output_layer_macs_per_row", head_macs},
          {"weight_bytes_per_step", weight_bytes},
          {"kv_bytes_per_token", kv_token_bytes}};
}

ModelCost cost_of(const LoadedModel& model) {
  const ModelConfig& config = model.model->config();
  const auto product = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) * static_cast<double>(b);
  };
  ModelCost cost;
  const double attention = 2 * product(config.hidden_size, config.num_heads * config.head_dim) +
                           2 * product(config.hidden_size, config.num_kv_heads * config.head_dim);
  const double mlp = 3 * product(config.hidden_size, config.intermediate_size);
  cost.layer_macs = static_cast<double>(config.num_layers) * (attention + mlp);
  cost.head_macs = product(config.vocab_size, config.hidden_size);
  cost.weight_bytes = static_cast<double>(model.model->weight_bytes());
  if (!config.tie_word_embeddings) {
    // Of the embedding a step reads a row per token. Its size: as if all matrices had equally many bits.
    cost.weight_bytes *= (cost.layer_macs + cost.head_macs) / (cost.layer_macs + 2 * cost.head_macs);
  }
  const EngineConfig& engine = model.engine->config();
  cost.kv_token_bytes = static_cast<double>(model.model->kv_block_bytes(engine.block_size, engine.kv_dtype)) /
                        static_cast<double>(engine.block_size);
  return cost;
}

void StepSums::add(const LoggedStep& step) {
  ++num_steps;
  num_tokens += step.report.num_tokens;
  num_seqs += step.report.num_seqs;
  seconds += step.report.seconds;
  linear_seconds += 1e-9 * static_cast<double>(step.ops.linear_ns);
  attention_seconds += 1e-9 * static_cast<double>(step.ops.attention_ns);
  sample_seconds += step.report.sample_seconds;
}

void StepSums::add(const StepSums& other) {
  num_steps += other.num_steps;
  num_tokens += other.num_tokens;
  num_seqs += other.num_seqs;
  seconds += other.seconds;
  linear_seconds += other.linear_seconds;
  attention_seconds += other.attention_seconds;
  sample_seconds += other.sample_seconds;
}

Json StepSums::shares() const {
  const double all = std::max(seconds, 1e-9);
  return {{"linear", linear_seconds / all},
          {"attention", attention_seconds / all},
          {"sampling", sample_seconds / all},
          {"rest", (seconds - linear_seconds - attention_seconds - sample_seconds) / all}};
}

Result<cpu::Isa> isa_in_use() {
  QUIRE_TRY(const cpu::IsaChoice choice, cpu::choose_isa(""));
  return choice.isa;
}

int threads_in_use(const ModelFlags& flags) {
  return flags.threads > 0 ? flags.threads : detect_cpu_budget().num_usable;
}

}  // namespace quire
