#include "apps/app_support.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/compute_plan.h"
#include "apps/engine_start.h"
#include "apps/kv_plan.h"
#include "apps/model_text.h"
#include "base/log.h"
#include "loader/catalogue.h"
#include "model/config.h"
#include "text/utf8.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

Result<DType> choose_kv_dtype(const std::string& name, ComputeMode compute) {
  if (name == "auto") return compute == ComputeMode::kF32 ? DType::kF32 : DType::kF16;
  if (name == "f32" || name == "float32") return DType::kF32;
  if (name == "f16" || name == "fp16" || name == "float16") return DType::kF16;
  if (name == "bf16" || name == "bfloat16") return DType::kBf16;
  return invalid(fmt::format("--kv-cache-dtype {}: choose auto, f32, f16 or bf16", name), "kv-cache-dtype");
}

SamplingDefaults defaults_of(const ModelConfig& config, bool use_generation_config) {
  SamplingDefaults out;
  if (!use_generation_config) return out;
  // "Not given" is NaN or negative; values out of range are ignored rather than refused at every request.
  if (config.default_temperature >= 0) out.temperature = config.default_temperature;
  if (config.default_top_p > 0 && config.default_top_p <= 1) out.top_p = config.default_top_p;
  if (config.default_top_k >= 0) out.top_k = config.default_top_k;
  if (config.default_min_p >= 0 && config.default_min_p <= 1) out.min_p = config.default_min_p;
  if (config.default_repetition_penalty > 0 && config.default_repetition_penalty <= 10) {
    out.repetition_penalty = config.default_repetition_penalty;
  }
  return out;
}

// FNV-1a: names a configuration, protects nothing.
std::string fingerprint(const std::vector<std::string>& parts) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const std::string& part : parts) {
    for (const char c : part + '\n') hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return fmt::format("fp_{:012x}", hash >> 16);
}

// Collects the report twice: lines for people, JSON for /v1/engine.
class Report {
 public:
  explicit Report(LoadedModel& out) : out_(out) {}
  void add(const std::string& key, const std::string& line) {
    out_.report.push_back(fmt::format("{:<14} {}", key, line));
    out_.served.info["report"][key].push_back(line);
  }
  Json& info() { return out_.served.info; }

 private:
  LoadedModel& out_;
};

}  // namespace

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  // Of a flag given twice the last one counts, so that wrappers can set defaults.
  command.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  command.add_option("MODEL", flags.model_arg,
                     "A name of the catalogue, a GGUF file, or a checkpoint folder");
  command.add_option("--model", flags.model, "The same as MODEL");
  command.add_option("--tokenizer", flags.tokenizer, "Take the tokenizer from this GGUF file or folder");
  command.add_option("--chat-template", flags.chat_template, "A Jinja file, or the template itself");
  command
      .add_option("--generation-config", flags.generation_config,
                  "auto: sampling defaults from the model's generation_config.json; vllm: none")
      ->check(CLI::IsMember({"auto", "vllm"}))
      ->capture_default_str();
  command.add_option("--backend", flags.backend, "cpu, or ref (plain and slow, the reference)")
      ->capture_default_str();
  command.add_option("--compute", flags.compute, "Precision of activations: auto, f32, bf16 or int8")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "int8"}))
      ->capture_default_str();
  command
      .add_option("--dtype", flags.dtype,
                  "Type of weights that are not quantized: auto (as in the file), bfloat16, float16, float32")
      ->capture_default_str();
  command
      .add_option("--threads", flags.threads,
                  "Threads that compute, each bound to one CPU if given; 0 = all CPUs this process may use, "
                  "not bound")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      .add_option(
          "--max-model-len", flags.max_model_len,
          "Longest prompt and answer in tokens (32k = 32000, 32K = 32768); auto = the model's context, "
          "as far as the KV cache holds it")
      ->capture_default_str();
  command.add_option("--engine-dir", flags.engine_dir,
                     "Start from what `quire build` wrote, instead of from MODEL");
  command.add_option(
      "--engine-cache", flags.engine_cache,
      "Folder for engine files, which later starts map instead of packing the weights again, or "
      "off; else $QUIRE_ENGINE_CACHE, else engines/ beside the models");
  command.add_option("--max-num-seqs", flags.max_num_seqs, "Sequences that run at once")
      ->each([&flags](const std::string&) { flags.max_num_seqs_given = true; })
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command.add_option("--max-num-batched-tokens", flags.max_num_batched_tokens, "Tokens computed per step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--block-size", flags.block_size, "Tokens per KV block")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      .add_option("--kv-blocks,--num-gpu-blocks-override", flags.kv_blocks,
                  "KV blocks; 0 = by --kv-cache-memory-bytes or free memory")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31));
  command.add_option("--kv-cache-memory-bytes", flags.kv_cache_memory, "Memory for the KV cache, e.g. 4G");
  command
      .add_option("--kv-cache-dtype", flags.kv_cache_dtype,
                  "auto (f32 with --compute f32, else f16), f32, f16, bf16")
      ->capture_default_str();
  command.add_option("--seed", flags.seed,
                     "Seed of requests that bring none; without it they differ at each start");
  command.add_option("--log-level", flags.log_level, "debug, info, warning, error or off")
      ->capture_default_str();
}

void add_eviction_flags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option(
          "--kv-eviction", flags.kv_eviction,
          "Which keys and values are forgotten, so that a text may be of any length in a fixed number "
          "of blocks: none, or streaming (the first tokens and the last ones are kept)")
      ->check(CLI::IsMember({"none", "streaming"}))
      ->capture_default_str();
  command.add_option("--kv-sinks", flags.eviction.sinks, "First tokens that --kv-eviction streaming keeps")
      ->check(CLI::Range(std::int64_t{0}, kMaxKvSinks))
      ->capture_default_str();
  command
      .add_option("--kv-window", flags.eviction.window,
                  "Last tokens that --kv-eviction streaming keeps; at least --block-size")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31))
      ->capture_default_str();
}

void add_sampling_flags(CLI::App& command, SamplingFlags& flags) {
  command.add_option("--temperature", flags.temperature, "0 = always the most likely token")
      ->check(CLI::Range(0.0, 100.0));
  command.add_option("--top-p", flags.top_p)->check(CLI::Range(0.0, 1.0));
  command.add_option("--top-k", flags.top_k)->check(CLI::Range(-1, 1 << 30));
  command.add_option("--min-p", flags.min_p)->check(CLI::Range(0.0, 1.0));
  command.add_option("--repetition-penalty", flags.repetition_penalty)->check(CLI::Range(0.01, 10.0));
  command.add_option("--presence-penalty", flags.presence_penalty)->check(CLI::Range(-2.0, 2.0));
  command.add_option("--frequency-penalty", flags.frequency_penalty)->check(CLI::Range(-2.0, 2.0));
  command
      .add_option("--max-tokens,-n", flags.max_tokens, "Longest answer in tokens; default: as many as fit")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  command.add_option("--stop", flags.stop, "End the answer at this text (may be given several times)");
  command.add_flag("--ignore-eos", flags.ignore_eos, "Go on behind the end-of-text token");
}

Result<GenerateRequest> make_request(const SamplingFlags& flags, const ModelFlags& model_flags,
                                     const ServedModel& model) {
  GenerateRequest request;
  request.id = "local";
  SamplingParams& sampling = request.sampling;
  sampling.temperature = flags.temperature.value_or(model.defaults.temperature);
  sampling.top_p = flags.top_p.value_or(model.defaults.top_p);
  sampling.top_k = flags.top_k.value_or(model.defaults.top_k);
  sampling.min_p = flags.min_p.value_or(model.defaults.min_p);
  sampling.repetition_penalty = flags.repetition_penalty.value_or(model.defaults.repetition_penalty);
  sampling.presence_penalty = flags.presence_penalty.value_or(0);
  sampling.frequency_penalty = flags.frequency_penalty.value_or(0);
  sampling.ignore_eos = flags.ignore_eos;
  sampling.seed = model_flags.seed;
  request.eviction = model.eviction;
  request.max_tokens = flags.max_tokens;
  for (const std::string& stop : flags.stop) {
    if (stop.empty()) return invalid("--stop: an empty text would stop at once", "stop");
    if (!is_valid_utf8(stop)) return invalid("--stop: not valid UTF-8", "stop");
  }
  request.stop = flags.stop;
  return request;
}

Status set_log_level_by_name(const std::string& name) {
  const std::pair<const char*, LogLevel> levels[] = {{"debug", LogLevel::kDebug},
                                                     {"info", LogLevel::kInfo},
                                                     {"warning", LogLevel::kWarning},
                                                     {"error", LogLevel::kError},
                                                     {"off", LogLevel::kOff}};
  for (const auto& [known, level] : levels) {
    if (name == known) {
      set_log_level(level);
      return {};
    }
  }
  return invalid(fmt::format("--log-level {}: choose debug, info, warning, error or off", name), "log-level");
}

Result<std::int64_t> parse_count(const std::string& text, const std::string& flag) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  double factor = 0;
  if (unit.empty()) factor = 1;
  if (unit == "k") factor = 1e3;
  if (unit == "m") factor = 1e6;
  if (unit == "g") factor = 1e9;
  if (unit == "K") factor = 1024.0;
  if (unit == "M") factor = 1024.0 * 1024;
  if (unit == "G") factor = 1024.0 * 1024 * 1024;
  const double product = value * factor;
  if (error != std::errc() || factor == 0 || !(product >= 1) || product > 1e15 ||
      product != std::floor(product)) {
    return invalid(
        fmt::format("--{} {}: expected a whole number, e.g. 4096, 32k (32000) or 32K (32768)", flag, text),
        flag);
  }
  return static_cast<std::int64_t>(product);
}

std::function<void(double)> progress_bar(const std::string& label) {
  if (::isatty(STDERR_FILENO) == 0) return [](double) {};
  return [label, last = -1](double share) mutable {
    const int percent = static_cast<int>(share * 100);
    if (percent == last) return;
    last = percent;
    const int filled = percent * 30 / 100;
    fmt::print(stderr, "\r{} [{}{}] {:3d}%", label, std::string(static_cast<std::size_t>(filled), '#'),
               std::string(static_cast<std::size_t>(30 - filled), ' '), percent);
    if (percent >= 100) fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
  };
}

namespace {

// The parts of load_for_serving(), each adding to the same LoadedModel.
struct Machine {
  ComputeChoice compute;
  std::int64_t max_model_len = 0;  // asked; 0 = auto
};

// text: what is being loaded meanwhile.
Result<Machine> load_weights(const ModelFlags& flags, const std::function<void(double)>& progress,
                             const std::future<Result<ModelText>>& text, LoadedModel& out, Report& report) {
  Machine machine;
  if (flags.max_model_len != "auto" && flags.max_model_len != "-1") {
    QUIRE_TRY(machine.max_model_len, parse_count(flags.max_model_len, "max-model-len"));
  }
  const EngineInfo* built = out.engine_file == nullptr ? nullptr : &out.engine_file->table().info;
  QUIRE_TRY(const ComputePlan plan, plan_compute(flags, *out.checkpoint, built));
  machine.compute = plan.compute;
  QUIRE_TRY(out.backend, make_backend(flags.backend, plan.options));
  report.add("compute",
             fmt::format("{}: {}", compute_mode_name(machine.compute.mode), machine.compute.reason));
  report.add("threads", flags.threads > 0
                            ? fmt::format("{}: --threads ({} usable)", flags.threads, plan.cpus.num_usable)
                            : fmt::format("{}: {}", plan.cpus.num_usable, plan.cpus.reason));
  for (const std::string& line : out.backend->report()) report.add("backend", line);

  QUIRE_TRY(const ModelConfig config, read_model_config(*out.checkpoint));
  if (machine.max_model_len > config.context_length) {
    return invalid(fmt::format("--max-model-len {} is more than this model's context of {} tokens",
                               machine.max_model_len, config.context_length),
                   "max-model-len");
  }
  LoadOptions load;
  load.weight_dtype = plan.hold_as;
  report.add("weights", plan.hold_as_reason);
  load.max_model_len = machine.max_model_len;
  load.progress = [&progress](std::size_t done, std::size_t total) {
    progress(total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total));
  };
  EngineStart start;
  if (built != nullptr) {
    QUIRE_RETURN_IF_ERROR(check_built_engine(*out.engine_file, *out.checkpoint, *out.backend, plan.hold_as));
  } else {
    start = start_from_cache(flags.engine_cache, *out.checkpoint, *out.backend, plan.hold_as);
    out.engine_file = std::move(start.file);
  }
  // Packing takes all threads; mapping leaves them to the tokenizer.
  if (out.engine_file == nullptr) text.wait();
  const auto begun = std::chrono::steady_clock::now();
  load.engine = out.engine_file.get();
  load.engine_writer = start.writer.get();
  auto loaded = load_model(*out.checkpoint, *out.backend, load);
  if (!loaded.ok() && built == nullptr && load.engine != nullptr) {
    log_warning("{}; packing the weights again", loaded.error().message);
    start = replace_in_cache(flags.engine_cache, *out.checkpoint, *out.backend, plan.hold_as);
    out.engine_file.reset();
    load.engine = nullptr;
    load.engine_writer = start.writer.get();
    loaded = load_model(*out.checkpoint, *out.backend, load);
  }
  if (!loaded.ok()) return loaded.error();
  out.model = std::move(*loaded);
  if (out.engine_file != nullptr) out.engine_file->prefetch();
  progress(1.0);
  const std::string engine_line =
      out.engine_file != nullptr
          ? fmt::format("mapped: {}, {}", out.engine_file->path(), memory_text(out.engine_file->file_bytes()))
          : finish_in_cache(start);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  report.add("weights",
             fmt::format("{} in memory, {} in the checkpoint, {} in {:.2f} s",
                         memory_text(out.model->weight_bytes()), memory_text(out.checkpoint->total_bytes),
                         out.engine_file != nullptr ? "mapped" : "packed", seconds));
  report.add("engine file", engine_line);
  if (built != nullptr) {
    for (const std::string& line : engine_info_lines(*built)) report.add("engine file", line);
    if (built->max_batch_size > 0 && flags.max_num_seqs > built->max_batch_size)
      report.add("engine file", fmt::format("--max-num-seqs {} is beyond the {} it was built for",
                                            flags.max_num_seqs, built->max_batch_size));
    if (built->max_input_len > 0 && machine.max_model_len > built->max_input_len + built->max_output_len)
      report.add("engine file",
                 fmt::format("--max-model-len {} is beyond the {} it was built for", machine.max_model_len,
                             built->max_input_len + built->max_output_len));
  }
  for (const std::string& line : out.model->report()) report.add("model", line);
  report.info()["compute"] = {{"mode", std::string(compute_mode_name(machine.compute.mode))},
                              {"reason", machine.compute.reason}};
  report.info()["threads"] = plan.options.num_threads;
  report.info()["engine_file"] = out.engine_file != nullptr ? Json(out.engine_file->path()) : Json();
  report.info()["backend"] = out.backend->name();
  report.info()["weight_bytes"] = out.model->weight_bytes();
  return machine;
}

// The policy of requests that name none. Refused here, it would be refused for each of them.
Result<KvEviction> eviction_of(const ModelFlags& flags, const EngineConfig& engine) {
  KvEviction eviction = flags.eviction;
  if (flags.kv_eviction == "streaming") eviction.policy = KvEvictionPolicy::kStreaming;
  const Status status = check_eviction(eviction, engine.num_blocks, engine.block_size, engine.max_model_len);
  if (status.ok()) return eviction;
  return make_error(status.error().code, "--kv-eviction streaming: " + status.error().message, "kv-eviction");
}

Status start_engine(const ModelFlags& flags, const Machine& machine,
                    std::function<void(const StepReport&)> on_step, LoadedModel& out, Report& report) {
  const ModelConfig& config = out.model->config();
  EngineConfig engine;
  engine.max_num_seqs = flags.max_num_seqs;
  engine.max_num_batched_tokens = flags.max_num_batched_tokens;
  engine.block_size = flags.block_size;
  engine.max_num_queued_reqs = flags.max_num_queued_reqs;
  engine.seed_given = flags.seed.has_value();
  engine.seed = flags.seed.value_or(0);
  QUIRE_TRY(engine.kv_dtype, choose_kv_dtype(flags.kv_cache_dtype, machine.compute.mode));
  KvPlanInput input;
  input.model_context = config.context_length;
  input.max_model_len = machine.max_model_len;
  input.max_num_seqs = flags.max_num_seqs;
  input.block_size = flags.block_size;
  input.block_bytes = out.model->kv_block_bytes(flags.block_size, engine.kv_dtype);
  input.num_blocks = flags.kv_blocks;
  if (!flags.kv_cache_memory.empty()) {
    QUIRE_TRY(const std::int64_t bytes, parse_count(flags.kv_cache_memory, "kv-cache-memory-bytes"));
    input.memory_bytes = static_cast<std::size_t>(bytes);
  }
  input.free = detect_free_memory();
  if (out.engine_file != nullptr) {
    const std::uint64_t workspace = out.engine_file->table().info.workspace_bytes;
    input.free.bytes -= std::min<std::size_t>(input.free.bytes, workspace);
  }
  QUIRE_TRY(const KvPlan plan, plan_kv(input));
  engine.num_blocks = plan.num_blocks;
  engine.max_model_len = plan.max_model_len;
  QUIRE_TRY(out.served.eviction, eviction_of(flags, engine));
  QUIRE_RETURN_IF_ERROR(out.model->allocate_kv(engine.num_blocks, engine.block_size, engine.kv_dtype));
  out.engine = std::make_unique<Engine>(*out.model, out.backend->pool(), engine, std::move(on_step));
  out.engine->start();

  const EngineConfig& used = out.engine->config();
  const std::size_t kv_bytes = static_cast<std::size_t>(used.num_blocks) * input.block_bytes;
  const std::int64_t tokens = used.num_blocks * used.block_size;
  report.add("kv cache",
             fmt::format("{} blocks of {} tokens, {} in {}, {} bytes per token: {}", used.num_blocks,
                         used.block_size, memory_text(kv_bytes), dtype_name(used.kv_dtype),
                         input.block_bytes / static_cast<std::size_t>(used.block_size), plan.reason));
  report.add("kv cache", fmt::format("holds {} tokens: {} sequences of {}, or {} of 1024 at once", tokens,
                                     std::max<std::int64_t>(1, tokens / used.max_model_len),
                                     used.max_model_len, std::min(used.max_num_seqs, tokens / 1024)));
  const bool whole = used.max_model_len == config.context_length;
  report.add(
      "limits",
      fmt::format(
          "max_model_len {} ({}), max_num_seqs {}, max_num_batched_tokens {}, queue {}", used.max_model_len,
          whole ? "the model's context" : fmt::format("the model's context is {}", config.context_length),
          used.max_num_seqs, used.max_num_batched_tokens,
          used.max_num_queued_reqs == 0 ? "unbounded" : std::to_string(used.max_num_queued_reqs)));
  report.add("seed", flags.seed ? fmt::format("{}: requests without one are repeatable", *flags.seed)
                                : std::string("from the system: requests without one differ at each start"));
  report.info()["limits"] = {{"max_model_len", used.max_model_len},
                             {"model_context", config.context_length},
                             {"max_num_seqs", used.max_num_seqs},
                             {"max_num_batched_tokens", used.max_num_batched_tokens},
                             {"max_num_queued_reqs", used.max_num_queued_reqs}};
  const KvEviction& eviction = out.served.eviction;
  if (eviction.evicts()) {
    report.add("kv eviction", fmt::format("streaming: the first {} tokens and the last {} are kept",
                                          eviction.sinks, eviction.window));
  }
  report.info()["kv_eviction"] = {{"policy", eviction.evicts() ? "streaming" : "none"},
                                  {"sinks", eviction.sinks},
                                  {"window", eviction.window}};
  report.info()["kv_cache"] = {{"num_blocks", used.num_blocks},
                               {"block_size", used.block_size},
                               {"dtype", std::string(dtype_name(used.kv_dtype))},
                               {"bytes", kv_bytes},
                               {"reason", plan.reason}};
  return {};
}

void fill_served(const ModelFlags& flags, const std::string& asked, const Machine& machine, LoadedModel& out,
                 Report& report) {
  ServedModel& served = out.served;
  const ModelConfig& config = out.model->config();
  std::error_code ignored;
  // ORG/NAME is a name; a path is not, and would show folders of this machine.
  const bool is_path = fs::exists(asked, ignored);
  served.root = out.checkpoint->name;
  served.names = {is_path ? out.checkpoint->name : asked};
  served.engine = out.engine.get();
  served.tokenizer = out.tokenizer.get();
  served.chat_template = out.chat_template.get();
  served.eos_ids = config.eos_ids;
  for (const TokenId id : out.tokenizer->end_ids()) {
    if (std::find(served.eos_ids.begin(), served.eos_ids.end(), id) == served.eos_ids.end()) {
      served.eos_ids.push_back(id);
    }
  }
  served.defaults = defaults_of(config, flags.generation_config == "auto");
  served.max_model_len = out.engine->config().max_model_len;
  served.vocab_size = std::min<std::int64_t>(config.vocab_size, out.tokenizer->vocab_size());
  served.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  std::vector<std::string> identity{QUIRE_VERSION,
                                    out.checkpoint->name,
                                    std::to_string(out.checkpoint->total_bytes),
                                    std::string(compute_mode_name(machine.compute.mode)),
                                    std::string(dtype_name(out.engine->config().kv_dtype)),
                                    std::to_string(out.engine->config().block_size)};
  for (const std::string& line : out.backend->report()) identity.push_back(line);
  served.system_fingerprint = fingerprint(identity);
  const SamplingDefaults& defaults = served.defaults;
  report.add("sampling",
             fmt::format("defaults temperature {}, top_p {}, top_k {}, min_p {}, repetition_penalty {} ({})",
                         defaults.temperature, defaults.top_p, defaults.top_k, defaults.min_p,
                         defaults.repetition_penalty,
                         flags.generation_config == "auto" ? "the model's generation_config, else vLLM's"
                                                           : "--generation-config vllm"));
  std::string ends;
  for (const std::int32_t id : served.eos_ids) ends += fmt::format("{}{}", ends.empty() ? "" : ", ", id);
  report.add("end tokens", ends.empty() ? "none known: answers end at max_tokens" : ends);
  report.info()["eos_token_ids"] = served.eos_ids;
  report.info()["system_fingerprint"] = served.system_fingerprint;
}

}  // namespace

Result<std::string> asked_model(const ModelFlags& flags) {
  if (!flags.model.empty() && !flags.model_arg.empty() && flags.model != flags.model_arg) {
    return invalid("name the model once: as an argument or with --model", "model");
  }
  const std::string asked = flags.model.empty() ? flags.model_arg : flags.model;
  if (!flags.engine_dir.empty()) {
    if (asked.empty()) return asked;
    return invalid("--engine-dir has the model inside: leave out the name of the model", "engine-dir");
  }
  if (asked.empty()) {
    return invalid("which model? Name one of the catalogue (`quire pull --list`), a GGUF file or a folder",
                   "model");
  }
  return asked;
}

Result<std::unique_ptr<LoadedModel>> load_for_serving(const ModelFlags& given,
                                                      const std::function<void(double)>& progress,
                                                      std::function<void(const StepReport&)> on_step) {
  QUIRE_TRY(const std::string asked, asked_model(given));
  auto out = std::make_unique<LoadedModel>();
  Report report(*out);
  QUIRE_TRY(const std::string engine_path, engine_file_of(given, asked));
  if (engine_path.empty()) {
    QUIRE_TRY(const std::string path, resolve_model(asked));
    QUIRE_TRY(out->checkpoint, open_checkpoint(path));
  } else {
    QUIRE_TRY(out->engine_file, EngineFile::open(engine_path));
    QUIRE_TRY(out->checkpoint, out->engine_file->checkpoint());
  }
  const ModelFlags flags =
      out->engine_file == nullptr ? given : with_engine_limits(given, out->engine_file->table().info);
  std::future<Result<ModelText>> text = std::async(std::launch::async, [&flags, &out] {
    return load_model_text(flags.tokenizer, flags.chat_template, *out->checkpoint);
  });
  QUIRE_TRY(const ModelConfig config, read_model_config(*out->checkpoint));
  out->served.info["version"] = QUIRE_VERSION;
  out->served.info["model"] = out->checkpoint->name;
  out->served.info["architecture"] = config.architecture;
  report.add("quire", QUIRE_VERSION);
  std::int64_t parameters = 0;
  for (const TensorView& tensor : out->checkpoint->tensors->tensors()) parameters += tensor.num_values();
  out->served.info["num_parameters"] = parameters;
  report.add("model",
             fmt::format("{}: {}, {:.1f} M parameters, {} layers, {}", out->checkpoint->name,
                         config.architecture, static_cast<double>(parameters) / 1e6, config.num_layers,
                         out->checkpoint->format == CheckpointFormat::kGguf
                             ? fmt::format("GGUF v{}", out->checkpoint->gguf_version)
                             : std::string("safetensors")));
  QUIRE_TRY(const Machine machine, load_weights(flags, progress, text, *out, report));
  QUIRE_TRY(ModelText loaded_text, text.get());
  out->tokenizer = std::move(loaded_text.tokenizer);
  out->chat_template = std::move(loaded_text.chat_template);
  out->served.chat_template_problem = std::move(loaded_text.chat_template_problem);
  for (const auto& [key, line] : loaded_text.report) report.add(key, line);
  QUIRE_RETURN_IF_ERROR(start_engine(flags, machine, std::move(on_step), *out, report));
  fill_served(flags, engine_path.empty() ? asked : out->checkpoint->name, machine, *out, report);
  return out;
}

}  // namespace quire
