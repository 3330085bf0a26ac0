// quire bench throughput MODEL: how many requests and tokens per second, all requests sent at once. Flags and
// the first keys of its JSON as `vllm bench throughput` has them (docs.vllm.ai, CLI reference).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

#include <fmt/format.h>

#include "apps/bench_support.h"
#include "apps/commands.h"
#include "apps/interrupt.h"

namespace quire {
namespace {

struct ThroughputFlags {
  ModelFlags model;
  std::string dataset_name;  // "" = sharegpt with a path, else random
  std::string dataset_path;
  std::optional<std::int64_t> input_len;
  std::optional<std::int64_t> output_len;
  std::int64_t prefix_len = 0;
  double range_ratio = 0;
  std::int64_t n = 1;
  std::int64_t num_prompts = 1000;
  double temperature = 0;
  std::string output_json;
  std::int64_t num_checked = 1;
  bool disable_detokenize = false;
};

// The defaults of vLLM's random dataset.
constexpr std::int64_t kRandomInputLen = 1024;
constexpr std::int64_t kRandomOutputLen = 128;
// vLLM's filter of ShareGPT conversations: shorter ones say little, longer ones take too long.
constexpr std::int64_t kLeastTokens = 4;
constexpr std::int64_t kMostPromptTokens = 1024;
constexpr std::int64_t kMostTokens = 2048;

// Lengths vary by --random-range-ratio around those asked for.
std::int64_t least_length(std::int64_t length, double ratio) {
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::floor(static_cast<double>(length) * (1 - ratio))));
}
std::int64_t most_length(std::int64_t length, double ratio) {
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(length) * (1 + ratio)));
}

std::vector<BenchRequest> random_requests(const ThroughputFlags& flags, PromptMaker* maker) {
  const std::int64_t input = flags.input_len.value_or(kRandomInputLen);
  const std::int64_t output = flags.output_len.value_or(kRandomOutputLen);
  const std::vector<std::int32_t> prefix = maker->make(flags.prefix_len);
  std::vector<BenchRequest> out;
  for (std::int64_t i = 0; i < flags.num_prompts; ++i) {
    BenchRequest request;
    request.prompt = prefix;
    const std::int64_t length =
        maker->uniform(least_length(input, flags.range_ratio), most_length(input, flags.range_ratio));
    for (const std::int32_t token : maker->make(length)) request.prompt.push_back(token);
    request.output_len =
        maker->uniform(least_length(output, flags.range_ratio), most_length(output, flags.range_ratio));
    out.push_back(std::move(request));
  }
  return out;
}

// A JSON list of {"conversations": [{"value": prompt}, {"value": answer}, ...]}.
Result<std::vector<BenchRequest>> sharegpt_requests(const ThroughputFlags& flags, const LoadedModel& model,
                                                    PromptMaker* maker) {
  std::ifstream file(flags.dataset_path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file.good()) {
    return make_error(ErrorCode::kNotFound,
                      fmt::format("--dataset-path: cannot read {}", flags.dataset_path));
  }
  const Json data = Json::parse(text.str(), nullptr, false);
  if (!data.is_array()) {
    return invalid(fmt::format("--dataset-path: {} is not a JSON list of conversations, as ShareGPT's is",
                               flags.dataset_path));
  }
  const auto value_of = [](const Json& conversation, std::size_t turn) -> const std::string* {
    const Json& message = conversation[turn];
    if (!message.is_object() || !message.contains("value")) return nullptr;
    return message["value"].get_ptr<const std::string*>();
  };
  std::vector<std::size_t> order(data.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1],
              order[static_cast<std::size_t>(maker->uniform(0, static_cast<std::int64_t>(i) - 1))]);
  }
  std::vector<BenchRequest> out;
  for (const std::size_t at : order) {
    if (static_cast<std::int64_t>(out.size()) == flags.num_prompts) break;
    const Json& entry = data[at];
    if (!entry.is_object() || !entry.contains("conversations")) continue;
    const Json& turns = entry["conversations"];
    if (!turns.is_array() || turns.size() < 2) continue;
    const std::string* prompt = value_of(turns, 0);
    const std::string* answer = value_of(turns, 1);
    if (prompt == nullptr || answer == nullptr) continue;
    BenchRequest request;
    request.prompt = model.tokenizer->encode(*prompt, {true, false});
    request.output_len = flags.output_len.value_or(
        static_cast<std::int64_t>(model.tokenizer->encode(*answer, {false, false}).size()));
    const auto length = static_cast<std::int64_t>(request.prompt.size());
    if (length < kLeastTokens || (!flags.output_len && request.output_len < kLeastTokens)) continue;
    if (length > kMostPromptTokens || length + request.output_len > kMostTokens) continue;
    if (length + request.output_len > model.served.max_model_len) continue;
    out.push_back(std::move(request));
  }
  if (out.empty()) {
    return invalid(
        fmt::format("--dataset-path: {} has no conversation of {} to {} prompt tokens and up to {} in "
                    "all",
                    flags.dataset_path, kLeastTokens, kMostPromptTokens, kMostTokens));
  }
  return out;
}

// Every prompt n times, each with a seed of its own.
Result<std::vector<BenchRequest>> make_requests(const ThroughputFlags& flags, const LoadedModel& model) {
  PromptMaker maker(*model.tokenizer, model.served.vocab_size, flags.model.seed.value_or(0));
  std::vector<BenchRequest> prompts;
  if (flags.dataset_name == "random") {
    prompts = random_requests(flags, &maker);
  } else {
    QUIRE_TRY(prompts, sharegpt_requests(flags, model, &maker));
  }
  std::vector<BenchRequest> requests;
  for (const BenchRequest& prompt : prompts) {
    for (std::int64_t j = 0; j < flags.n; ++j) {
      requests.push_back(prompt);
      requests.back().seed = flags.model.seed.value_or(0) + requests.size() - 1;
    }
  }

  return requests;
}

struct Figures {
  BatchRun run;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  StepSums steps;
  double weight_rate = 0;  // bytes per second over the whole run
  double linear_rate = 0;  // multiply-adds per second over the whole run
  std::vector<double> token_seconds;
};

Figures figures_of(BatchRun run, const std::vector<BenchRequest>& requests, const ModelCost& cost) {
  Figures out;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    out.prompt_tokens += static_cast<std::int64_t>(requests[i].prompt.size());
    out.output_tokens += requests[i].output_len;
    if (requests[i].output_len > 1) {
      out.token_seconds.push_back(run.answers[i].decode / static_cast<double>(requests[i].output_len - 1));
    }
  }
  for (const LoggedStep& step : run.steps) out.steps.add(step);
  out.weight_rate = cost.weight_bytes * static_cast<double>(out.steps.num_steps) / run.seconds;
  out.linear_rate = (cost.layer_macs * static_cast<double>(out.steps.num_tokens) +
                     cost.head_macs * static_cast<double>(out.output_tokens)) /
                    run.seconds;
  out.run = std::move(run);
  return out;
}

Status check_some_alone(const ThroughputFlags& flags, BatchRunner* runner,
                        const std::vector<BenchRequest>& requests, const BatchRun& run) {
  const auto count = std::min(flags.num_checked, static_cast<std::int64_t>(requests.size()));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i * static_cast<std::int64_t>(requests.size()) / count);
    QUIRE_TRY(const BatchRun alone, runner->run({requests[at]}));
    QUIRE_RETURN_IF_ERROR(
        check_same_tokens(alone.answers, {run.answers[at]}, fmt::format("request {} alone", at)));
  }
  return {};
}

struct Report {
  const ThroughputFlags& flags;
  LoadedModel& model;
  const Figures& figures;
  ModelCost cost;
  MachinePeaks peaks;
  Json machine;
  std::string checked;

  Json json() const;
  std::string text() const;
};

Json Report::json() const {
  const auto share = [](double rate, double peak, const char* unit) -> Json {
    return {{unit, rate / 1e9}, {"share_of_peak", rate / peak}};
  };
  const double seconds = figures.run.seconds;
  const std::size_t num_requests = figures.run.answers.size();
  const std::int64_t total = figures.prompt_tokens + figures.output_tokens;
  std::vector<double> first_tokens;
  for (const BenchAnswer& answer : figures.run.answers) first_tokens.push_back(answer.first_token);
  Json out;
  out["elapsed_time"] = seconds;
  out["num_requests"] = num_requests;
  out["total_num_tokens"] = total;
  out["requests_per_second"] = static_cast<double>(num_requests) / seconds;
  out["tokens_per_second"] = static_cast<double>(total) / seconds;
  out["output_tokens_per_second"] = static_cast<double>(figures.output_tokens) / seconds;
  out["num_prompt_tokens"] = figures.prompt_tokens;
  out["num_output_tokens"] = figures.output_tokens;
  out["ttft"] = {{"mean", mean(first_tokens)},
                 {"median", percentile(first_tokens, 50)},
                 {"p99", percentile(first_tokens, 99)}};
  if (!figures.token_seconds.empty()) {
    out["time_per_output_token"] = {{"mean", mean(figures.token_seconds)},
                                    {"median", percentile(figures.token_seconds, 50)},
                                    {"p99", percentile(figures.token_seconds, 99)}};
  }
  out["num_steps"] = figures.steps.num_steps;
  out["step_shares"] = figures.steps.shares();
  out["weights"] = share(figures.weight_rate, peaks.read_bandwidth, "gb_per_second");
  out["linear"] = share(figures.linear_rate, peaks.macs, "gmac_per_second");
  out["model"] = model.served.names.front();
  out["compute"] = std::string(compute_mode_name(model.backend->compute_mode()));
  out["kv_cache_dtype"] = std::string(dtype_name(model.engine->config().kv_dtype));
  out["dataset_name"] = flags.dataset_name;
  out["temperature"] = flags.temperature;
  out["n"] = flags.n;
  out["cost"] = cost.json();
  out["peaks"] = peaks.json();
  out["checked"] = checked;
  out["machine"] = machine;
  out["engine"] = model.served.info;
  return out;
}

std::string Report::text() const {
  const Json all = json();
  std::string out = fmt::format("{}, compute {}, KV {}: {} requests ({})\n{}, {} threads, {}\n\n",
                                all["model"].get<std::string>(), all["compute"].get<std::string>(),
                                all["kv_cache_dtype"].get<std::string>(), figures.run.answers.size(),
                                flags.dataset_name, machine["cpu"].get<std::string>(),
                                machine["threads"].get<int>(), machine["isa"].get<std::string>());
  out += fmt::format("Throughput: {:.2f} requests/s, {:.2f} total tokens/s, {:.2f} output tokens/s\n",
                     all["requests_per_second"].get<double>(), all["tokens_per_second"].get<double>(),
                     all["output_tokens_per_second"].get<double>());
  out += fmt::format("Total num prompt tokens:  {}\nTotal num output tokens:  {}\n\n", figures.prompt_tokens,
                     figures.output_tokens);
  const StepSums& steps = figures.steps;
  Table table({"steps", "tokens/step", "weights GB/s", "of peak", "GMAC/s", "of peak"});
  table.add({std::to_string(steps.num_steps),
             fmt::format("{:.1f}", static_cast<double>(steps.num_tokens) /
                                       static_cast<double>(std::max<std::int64_t>(1, steps.num_steps))),
             fmt::format("{:.1f}", figures.weight_rate / 1e9),
             percent_text(figures.weight_rate / peaks.read_bandwidth),
             fmt::format("{:.1f}", figures.linear_rate / 1e9),
             percent_text(figures.linear_rate / peaks.macs)});
  return out + table.text() + "\n" + peaks.text() + fmt::format("Answers: {}\n", checked);
}

Status throughput(ThroughputFlags flags) {
  QUIRE_RETURN_IF_ERROR(set_log_level_by_name(flags.model.log_level));
  QUIRE_RETURN_IF_ERROR(check_writable(flags.output_json));
  if (flags.dataset_name.empty()) flags.dataset_name = flags.dataset_path.empty() ? "random" : "sharegpt";
  const bool random = flags.dataset_name == "random";
  if (!random && flags.dataset_path.empty()) {
    return invalid("--dataset-name sharegpt needs --dataset-path, a JSON file", "dataset-path");
  }
  if (random && !flags.dataset_path.empty()) {
    return invalid("--dataset-name random takes no --dataset-path", "dataset-path");
  }
  if (!random && (flags.input_len || flags.prefix_len > 0 || flags.range_ratio > 0)) {
    return invalid("--input-len, --prefix-len and --random-range-ratio belong to --dataset-name random");
  }
  const std::int64_t longest = flags.prefix_len +
                               most_length(flags.input_len.value_or(kRandomInputLen), flags.range_ratio) +
                               most_length(flags.output_len.value_or(kRandomOutputLen), flags.range_ratio);
  const bool length_given = flags.model.max_model_len != "auto";
  if (random && !length_given) flags.model.max_model_len = std::to_string(longest);
  StepLog log;
  auto loaded = load_for_serving(flags.model, progress_bar("loading"), log.observer());
  if (!loaded.ok()) {
    Error error = loaded.error();
    if (error.param == "max-model-len" && !length_given) {
      error.message = fmt::format("prompts and answers of up to {} tokens: {}", longest, error.message);
    }
    return error;
  }
  LoadedModel& model = **loaded;
  if (random && longest > model.served.max_model_len) {
    return invalid(fmt::format("prompts and answers have up to {} tokens, but --max-model-len is {}", longest,
                               model.served.max_model_len));
  }
  QUIRE_TRY(const std::vector<BenchRequest> requests, make_requests(flags, model));
  std::int64_t all_tokens = 0;
  for (const BenchRequest& request : requests) all_tokens += request.output_len;
  catch_interrupts();
  log.watch(model.backend.get());
  QUIRE_TRY(const cpu::Isa isa, isa_in_use());
  const int num_threads = model.backend->pool().num_threads();
  const ModelCost cost = cost_of(model);
  MachinePeaks peaks = measure_peaks(isa, model.backend->compute_mode(), num_threads);
  BatchRunner runner(model, log, flags.temperature, !flags.disable_detokenize);
  // One short request first: pages of weights come into memory, scratch memory is made.
  {
    BenchRequest warm_up = requests.front();
    warm_up.output_len = std::min<std::int64_t>(warm_up.output_len, 2);
    QUIRE_TRY(const BatchRun ignored, runner.run({warm_up}));
    (void)ignored;
  }
  Figures figures;
  {
    WorkProgress progress("measuring");
    QUIRE_TRY(BatchRun run, runner.run(requests, [&](std::int64_t num_tokens) {
      progress.update(static_cast<double>(num_tokens) / static_cast<double>(all_tokens));
    }));
    figures = figures_of(std::move(run), requests, cost);
  }
  const MachinePeaks again = measure_peaks(isa, model.backend->compute_mode(), num_threads);
  peaks.macs = std::max(peaks.macs, again.macs);
  peaks.read_bandwidth = std::max(peaks.read_bandwidth, again.read_bandwidth);
  QUIRE_RETURN_IF_ERROR(check_some_alone(flags, &runner, requests, figures.run));
  const std::string checked =
      flags.num_checked == 0
          ? "not checked"
          : fmt::format("{} of {} requests gave the same tokens alone",
                        std::min<std::int64_t>(flags.num_checked, static_cast<std::int64_t>(requests.size())),
                        requests.size());
  const Report report{flags, model, figures, cost, peaks, describe_machine(isa, num_threads), checked};
  fmt::print("{}", report.text());
  return write_json(flags.output_json, report.json());
}

}  // namespace

void add_bench_throughput_command(CLI::App& bench, int* exit_code) {
  CLI::App* command = bench.add_subcommand("throughput", "How many requests and tokens per second");
  auto flags = std::make_shared<ThroughputFlags>();
  flags->model.log_level = "warning";
  add_model_flags(*command, flags->model);
  const CLI::Range count(std::int64_t{1}, std::int64_t{1} << 30);
  command
      ->add_option(
          "--dataset-name", flags->dataset_name,
          "random: tokens drawn at random; sharegpt: conversations of --dataset-path. Default: sharegpt "
          "with a path, else random")
      ->check(CLI::IsMember({"random", "sharegpt"}));
  command->add_option("--dataset-path,--dataset", flags->dataset_path, "A JSON file in ShareGPT's form");
  command
      ->add_option("--input-len,--random-input-len", flags->input_len,
                   fmt::format("Tokens of each random prompt; default {}", kRandomInputLen))
      ->check(count);
  command
      ->add_option(
          "--output-len,--random-output-len,--sharegpt-output-len", flags->output_len,
          fmt::format("Tokens of each answer; default {}, or those of the dataset's", kRandomOutputLen))
      ->check(count);
  command
      ->add_option("--prefix-len,--random-prefix-len", flags->prefix_len,
                   "Tokens that all random prompts begin with, besides --input-len")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command
      ->add_option("--random-range-ratio", flags->range_ratio,
                   "Random lengths vary by this share, up and down; below 1")
      ->check(CLI::Range(0.0, 0.999))
      ->capture_default_str();
  command->add_option("--n", flags->n, "Answers per prompt")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--num-prompts", flags->num_prompts, "Prompts sent at once")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command->add_option("--temperature", flags->temperature, "0 = always the most likely token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command
      ->add_option("--check", flags->num_checked,
                   "Requests that are repeated alone afterwards and must give the same tokens; 0 = none")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command->add_flag("--disable-detokenize", flags->disable_detokenize, "Do not turn the tokens into text");
  command->add_option("--output-json", flags->output_json, "Write the figures to this file");
  command->callback([flags, exit_code] {
    const Status status = throughput(*flags);
    *exit_code = status.ok() ? 0 : report_error(status.error());
  });
}

}  // namespace quire
