// quire bench latency MODEL: how long one batch of requests takes, prefill and decode apart. Flags and the
// first keys of its JSON as `vllm bench latency` has them (docs.vllm.ai, CLI reference).
#include <algorithm>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "apps/bench_support.h"
#include "apps/commands.h"
#include "apps/interrupt.h"

namespace quire {
namespace {

struct LatencyFlags {
  ModelFlags model;
  std::int64_t input_len = 32;
  std::int64_t output_len = 128;
  std::int64_t batch_size = 8;
  std::int64_t n = 1;
  std::int64_t num_iters_warmup = 10;
  std::int64_t num_iters = 30;
  double temperature = 0;
  std::string output_json;
  std::string check = "alone";
  bool disable_detokenize = false;
};

constexpr double kPercentiles[] = {10, 25, 50, 75, 90, 99};
// Tokens of the neighbour beside which a single sequence is checked.
constexpr std::int64_t kNeighbourTokens = 32;

Json percentiles_json(const std::vector<double>& values) {
  Json out = Json::object();
  for (const double percent : kPercentiles) out[fmt::format("{}", percent)] = percentile(values, percent);
  return out;
}

// One iteration, taken apart.
struct Phases {
  double seconds = 0;
  double prefill_seconds = 0;  // until the last sequence has its first token
  StepSums prefill;            // steps that compute prompts (and perhaps tokens of early sequences)
  StepSums decode;             // steps that compute one token of each sequence
};

Phases phases_of(const BatchRun& run, std::int64_t input_len) {
  Phases out;
  out.seconds = run.seconds;
  out.prefill_seconds = run.first_tokens();
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const LoggedStep& step = run.steps[i];
    const bool decodes = step.report.num_tokens == step.report.num_seqs && (input_len > 1 || i > 0);
    (decodes ? out.decode : out.prefill).add(step);
  }
  return out;
}

double median_of(const std::vector<Phases>& all, double (*value)(const Phases&)) {
  std::vector<double> values;
  for (const Phases& each : all) values.push_back(value(each));
  return percentile(values, 50);
}

class LatencyBench {
 public:
  LatencyBench(const LatencyFlags& flags, LoadedModel& model, StepLog& log)
      : flags_(flags),
        model_(model),
        runner_(model, log, flags.temperature, !flags.disable_detokenize),
        prompts_(*model.tokenizer, model.served.vocab_size, flags.model.seed.value_or(0)) {
    for (std::int64_t i = 0; i < flags.batch_size; ++i) {
      BenchRequest request{prompts_.make(flags.input_len), flags.output_len, 0};
      for (std::int64_t j = 0; j < flags.n; ++j) {
        request.seed = flags.model.seed.value_or(0) + requests_.size();
        requests_.push_back(request);
      }
    }
  }

  Status run();
  Json json() const;
  std::string text() const;

 private:
  Status check_alone();
  double share_of_reading(double bytes_per_second) const { return bytes_per_second / peaks_.read_bandwidth; }
  double decode_rate(double bytes_per_step) const {
    const double seconds = median_of(phases_, [](const Phases& p) {
      return p.decode.seconds / static_cast<double>(std::max<std::int64_t>(p.decode.num_steps, 1));
    });
    return seconds > 0 ? bytes_per_step / seconds : 0;
  }
  double kv_bytes_per_step() const {
    const StepSums& decode = phases_.front().decode;
    if (decode.num_steps == 0) return 0;
    const double num_seqs = static_cast<double>(decode.num_seqs) / static_cast<double>(decode.num_steps);
    const double context = static_cast<double>(flags_.input_len) + static_cast<double>(flags_.output_len) / 2;
    return num_seqs * context * cost_.kv_token_bytes;
  }
  // All steps of one kind, of all iterations.
  StepSums sums_of(bool of_decode) const;
  // Multiply-adds of linear layers per second that they took in the steps of one kind.
  double linear_rate(bool of_decode) const;

  const LatencyFlags& flags_;
  LoadedModel& model_;
  BatchRunner runner_;
  PromptMaker prompts_;
  std::vector<BenchRequest> requests_;
  ModelCost cost_;
  MachinePeaks peaks_;
  Json machine_;
  std::vector<BenchAnswer> first_;
  std::vector<Phases> phases_;  // of each measured iteration
  std::vector<double> latencies_;
  std::vector<double> first_token_seconds_;  // of every sequence of every iteration
  std::vector<double> token_seconds_;        // per output token behind the first, likewise
  std::string checked_ = "not checked";
};

StepSums LatencyBench::sums_of(bool of_decode) const {
  StepSums out;
  for (const Phases& each : phases_) out.add(of_decode ? each.decode : each.prefill);
  return out;
}

double LatencyBench::linear_rate(bool of_decode) const {
  std::vector<double> rates;
  const auto rows = static_cast<std::int64_t>(requests_.size()) * flags_.output_len;
  for (const Phases& each : phases_) {
    const StepSums& sums = of_decode ? each.decode : each.prefill;
    const std::int64_t own_rows = of_decode ? each.decode.num_seqs : rows - each.decode.num_seqs;
    if (sums.linear_seconds <= 0) continue;
    rates.push_back((cost_.layer_macs * static_cast<double>(sums.num_tokens) +
                     cost_.head_macs * static_cast<double>(own_rows)) /
                    sums.linear_seconds);
  }
  return rates.empty() ? 0 : percentile(rates, 50);
}

Status LatencyBench::run() {
  QUIRE_TRY(const cpu::Isa isa, isa_in_use());
  const int num_threads = model_.backend->pool().num_threads();
  machine_ = describe_machine(isa, num_threads);
  cost_ = cost_of(model_);
  peaks_ = measure_peaks(isa, model_.backend->compute_mode(), num_threads);
  const std::int64_t num_rounds = flags_.num_iters_warmup + flags_.num_iters;
  {
    WorkProgress progress("measuring");
    const std::int64_t per_round = static_cast<std::int64_t>(requests_.size()) * flags_.output_len;
    for (std::int64_t round = 0; round < num_rounds; ++round) {
      QUIRE_TRY(BatchRun run, runner_.run(requests_, [&](std::int64_t num_tokens) {
        progress.update(static_cast<double>(round * per_round + num_tokens) /
                        static_cast<double>(num_rounds * per_round));
      }));
      if (round == 0) first_ = run.answers;
      if (flags_.check != "none") {
        QUIRE_RETURN_IF_ERROR(check_same_tokens(run.answers, first_, fmt::format("iteration {}", round)));
      }
      if (round < flags_.num_iters_warmup) continue;
      latencies_.push_back(run.seconds);
      phases_.push_back(phases_of(run, flags_.input_len));
      for (const BenchAnswer& answer : run.answers) {
        first_token_seconds_.push_back(answer.first_token);
        if (flags_.output_len > 1) {
          token_seconds_.push_back(answer.decode / static_cast<double>(flags_.output_len - 1));
        }
      }
    }
  }
  if (flags_.check != "none") checked_ = fmt::format("{} iterations gave the same tokens", num_rounds);
  if (flags_.check == "alone") QUIRE_RETURN_IF_ERROR(check_alone());
  // A machine with neighbours has better and worse moments: the best of before and after is the yardstick.
  const MachinePeaks again = measure_peaks(isa, model_.backend->compute_mode(), num_threads);
  peaks_.macs = std::max(peaks_.macs, again.macs);
  peaks_.read_bandwidth = std::max(peaks_.read_bandwidth, again.read_bandwidth);
  return {};
}

// The last sequence by itself; a single one beside another, which is as different from being alone.
Status LatencyBench::check_alone() {
  std::vector<BenchRequest> others = {requests_.back()};
  const bool was_alone = requests_.size() == 1;
  if (was_alone) {
    const std::int64_t length = std::min(kNeighbourTokens, flags_.input_len);
    others.push_back({prompts_.make(length), flags_.output_len, 1});
  }
  QUIRE_TRY(const BatchRun run, runner_.run(others));
  QUIRE_RETURN_IF_ERROR(check_same_tokens({run.answers.front()}, {first_.back()},
                                          was_alone ? "beside another sequence" : "the last sequence alone"));
  checked_ += was_alone ? ", and so did the sequence beside another" : ", and so did the last sequence alone";
  return {};
}

Json LatencyBench::json() const {
  const auto num_seqs = static_cast<double>(requests_.size());
  const double prefill_seconds = median_of(phases_, [](const Phases& p) { return p.prefill_seconds; });
  const double decode_seconds =
      median_of(phases_, [](const Phases& p) { return p.seconds - p.prefill_seconds; });
  const StepSums& prefill = phases_.front().prefill;
  const StepSums& decode = phases_.front().decode;
  const auto linear = [&](bool of_decode) -> Json {
    const double rate = linear_rate(of_decode);
    return {
        {"gmac_per_second", rate / 1e9}, {"tops", 2 * rate / 1e12}, {"share_of_peak", rate / peaks_.macs}};
  };
  Json out;
  out["avg_latency"] = mean(latencies_);
  out["latencies"] = latencies_;
  out["percentiles"] = percentiles_json(latencies_);
  out["model"] = model_.served.names.front();
  out["compute"] = std::string(compute_mode_name(model_.backend->compute_mode()));
  out["kv_cache_dtype"] = std::string(dtype_name(model_.engine->config().kv_dtype));
  out["input_len"] = flags_.input_len;
  out["output_len"] = flags_.output_len;
  out["batch_size"] = flags_.batch_size;
  out["n"] = flags_.n;
  out["num_iters_warmup"] = flags_.num_iters_warmup;
  out["num_iters"] = flags_.num_iters;
  out["temperature"] = flags_.temperature;
  out["prefill"] = {
      {"num_tokens", flags_.input_len * static_cast<std::int64_t>(requests_.size())},
      {"num_steps", prefill.num_steps},
      {"seconds", prefill_seconds},
      {"tokens_per_second", num_seqs * static_cast<double>(flags_.input_len) / prefill_seconds},
      {"ttft",
       {{"mean", mean(first_token_seconds_)}, {"percentiles", percentiles_json(first_token_seconds_)}}},
      {"linear", linear(false)},
      {"step_shares", sums_of(false).shares()}};
  if (decode.num_steps > 0) {
    // Tokens behind the last first one; early sequences may have had some of theirs before.
    const double rate = decode_seconds > 0 ? static_cast<double>(decode.num_seqs) / decode_seconds : 0;
    const double weights = decode_rate(cost_.weight_bytes);
    const double all = decode_rate(cost_.weight_bytes + kv_bytes_per_step());
    out["decode"] = {
        {"num_tokens", decode.num_seqs},
        {"num_steps", decode.num_steps},
        {"seconds", decode_seconds},
        {"tokens_per_second", rate},
        {"time_per_output_token",
         {{"mean", mean(token_seconds_)}, {"percentiles", percentiles_json(token_seconds_)}}},
        {"weights", {{"gb_per_second", weights / 1e9}, {"share_of_peak", share_of_reading(weights)}}},
        {"weights_and_kv", {{"gb_per_second", all / 1e9}, {"share_of_peak", share_of_reading(all)}}},
        {"linear", linear(true)},
        {"step_shares", sums_of(true).shares()}};
  }
  out["cost"] = cost_.json();
  out["peaks"] = peaks_.json();
  out["checked"] = checked_;
  out["machine"] = machine_;
  out["engine"] = model_.served.info;
  return out;
}

std::string LatencyBench::text() const {
  const Json all = json();
  std::string out = fmt::format("{}, compute {}, KV {}: {} x {} tokens in, {} out\n{}, {} threads, {}\n\n",
                                all["model"].get<std::string>(), all["compute"].get<std::string>(),
                                all["kv_cache_dtype"].get<std::string>(), requests_.size(), flags_.input_len,
                                flags_.output_len, machine_["cpu"].get<std::string>(),
                                machine_["threads"].get<int>(), machine_["isa"].get<std::string>());
  out += fmt::format("Avg latency: {:.4f} seconds\n", mean(latencies_));
  for (const double percent : kPercentiles) {
    out += fmt::format("{}% percentile latency: {:.4f} seconds\n", percent, percentile(latencies_, percent));
  }
  Table table({"", "tokens", "steps", "seconds", "tok/s", "GMAC/s", "of peak", "weights GB/s", "of peak",
               "+ KV GB/s", "of peak"});
  for (const char* phase : {"prefill", "decode"}) {
    if (!all.contains(phase)) continue;
    const Json& part = all[phase];
    std::vector<std::string> cells = {phase,
                                      std::to_string(part["num_tokens"].get<std::int64_t>()),
                                      std::to_string(part["num_steps"].get<std::int64_t>()),
                                      fmt::format("{:.4f}", part["seconds"].get<double>()),
                                      fmt::format("{:.1f}", part["tokens_per_second"].get<double>()),
                                      fmt::format("{:.1f}", part["linear"]["gmac_per_second"].get<double>()),
                                      percent_text(part["linear"]["share_of_peak"].get<double>())};
    for (const char* what : {"weights", "weights_and_kv"}) {
      if (!part.contains(what)) continue;
      cells.push_back(fmt::format("{:.1f}", part[what]["gb_per_second"].get<double>()));
      cells.push_back(percent_text(part[what]["share_of_peak"].get<double>()));
    }
    table.add(std::move(cells));
  }
  out += "\n" + table.text();
  for (const char* phase : {"prefill", "decode"}) {
    if (!all.contains(phase)) continue;
    const Json& shares = all[phase]["step_shares"];
    const auto share = [&](const char* name) { return shares[name].get<double>(); };
    out += fmt::format(
        "\n{}: linear {}, attention {}, sampling {}, rest {}; outside linear and attention: {} of the step",
        phase, percent_text(share("linear")), percent_text(share("attention")),
        percent_text(share("sampling")), percent_text(share("rest")),
        percent_text(share("sampling") + share("rest")));
  }
  out +=
      fmt::format("\n\nTTFT: mean {:.1f} ms, median {:.1f}, 99% {:.1f}\n", 1e3 * mean(first_token_seconds_),
                  1e3 * percentile(first_token_seconds_, 50), 1e3 * percentile(first_token_seconds_, 99));
  if (!token_seconds_.empty()) {
    out += fmt::format("Time per output token: mean {:.2f} ms, median {:.2f}, 99% {:.2f}\n",
                       1e3 * mean(token_seconds_), 1e3 * percentile(token_seconds_, 50),
                       1e3 * percentile(token_seconds_, 99));
  }
  return out + peaks_.text() + fmt::format("Answers: {}\n", checked_);
}

Status latency(LatencyFlags flags, bool max_num_seqs_given) {
  QUIRE_RETURN_IF_ERROR(set_log_level_by_name(flags.model.log_level));
  QUIRE_RETURN_IF_ERROR(check_writable(flags.output_json));
  // A KV cache for this batch and no more, the check's neighbour included.
  const std::int64_t length = flags.input_len + flags.output_len;
  const bool length_given = flags.model.max_model_len != "auto";
  if (!length_given) flags.model.max_model_len = std::to_string(length);
  if (!max_num_seqs_given) {
    flags.model.max_num_seqs = std::max<std::int64_t>(2, flags.batch_size * flags.n);
  }
  StepLog log;
  auto loaded = load_for_serving(flags.model, progress_bar("loading"), log.observer());
  if (!loaded.ok()) {
    Error error = loaded.error();
    if (error.param == "max-model-len" && !length_given) {
      error.message = fmt::format("--input-len {} and --output-len {} need {} tokens; {}", flags.input_len,
                                  flags.output_len, length, error.message);
    }
    return error;
  }
  LoadedModel& model = **loaded;
  if (length > model.served.max_model_len) {
    return invalid(fmt::format("--input-len {} and --output-len {} need {} tokens, but --max-model-len is {}",
                               flags.input_len, flags.output_len, length, model.served.max_model_len));
  }
  catch_interrupts();
  log.watch(model.backend.get());
  LatencyBench bench(flags, model, log);
  QUIRE_RETURN_IF_ERROR(bench.run());
  fmt::print("{}", bench.text());
  return write_json(flags.output_json, bench.json());
}

}  // namespace

void add_bench_latency_command(CLI::App& bench, int* exit_code) {
  CLI::App* command = bench.add_subcommand("latency", "How long one batch of requests takes");
  auto flags = std::make_shared<LatencyFlags>();
  flags->model.log_level = "warning";
  add_model_flags(*command, flags->model);
  const CLI::Range count(std::int64_t{1}, std::int64_t{1} << 30);
  command->add_option("--input-len", flags->input_len, "Tokens of each prompt, drawn at random (--seed)")
      ->check(count)
      ->capture_default_str();
  command->add_option("--output-len", flags->output_len, "Tokens of each answer; end tokens do not end it")
      ->check(count)
      ->capture_default_str();
  command->add_option("--batch-size", flags->batch_size, "Prompts sent at once")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--n", flags->n, "Answers per prompt")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--num-iters-warmup", flags->num_iters_warmup, "Iterations before those measured")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--num-iters", flags->num_iters, "Iterations measured")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--temperature", flags->temperature, "0 = always the most likely token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command
      ->add_option("--check", flags->check,
                   "alone: every iteration must give the same tokens, and the last sequence by itself too; "
                   "repeat: only the former; none")
      ->check(CLI::IsMember({"alone", "repeat", "none"}))
      ->capture_default_str();
  command->add_flag("--disable-detokenize", flags->disable_detokenize, "Do not turn the tokens into text");
  command->add_option("--output-json", flags->output_json, "Write the figures to this file");
  command->callback([flags, command, exit_code] {
    const Status status = latency(*flags, command->get_option("--max-num-seqs")->count() > 0);
    *exit_code = status.ok() ? 0 : report_error(status.error());
  });
}

}  // namespace quire
