// quire build MODEL -o FILE|DIR: packs a model for this machine into one file that needs no checkpoint any
// more, and measures how to cut the work. The names of the limits are those of trtllm-build.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "apps/app_support.h"
#include "apps/commands.h"
#include "apps/compute_plan.h"
#include "apps/engine_start.h"
#include "apps/kv_plan.h"
#include "apps/tune.h"
#include "base/log.h"
#include "loader/catalogue.h"
#include "model/config.h"
#include "model/engine_writer.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

struct BuildFlags {
  ModelFlags model;
  std::string output;
  std::int64_t max_batch_size = 0;
  std::int64_t max_input_len = 0;
  std::int64_t max_output_len = 0;
  bool no_tuning = false;
  bool json = false;
};

// Prompts and batches beyond these take too long to measure, and cut their work the same way.
constexpr std::int64_t kLargestTunedBatch = 64;
constexpr std::int64_t kLongestTunedPrompt = 256;

// The file to write: FILE.qengine, or DIR/model.qengine with the folder made.
Result<std::string> output_path(const std::string& output) {
  std::error_code error;
  if (output.empty()) return invalid("where to? -o FILE.qengine or -o DIR", "output");
  fs::path path = output;
  const bool is_file = output.ends_with(".qengine") || fs::is_regular_file(path, error);
  const fs::path folder = is_file ? path.parent_path() : path;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) {
    return make_error(ErrorCode::kIo,
                      fmt::format("cannot create folder {}: {}", folder.string(), error.message()), "output");
  }
  return is_file ? output : (path / kEngineFileName).string();
}

// Activations of the largest step, as model/decoder.cc and the linear layers hold them.
std::uint64_t workspace_bytes(const ModelConfig& config, const EngineInfo& info, const ModelFlags& flags) {
  const std::int64_t tokens = std::max(
      info.max_batch_size, std::min(flags.max_num_batched_tokens,
                                    info.max_batch_size * std::max<std::int64_t>(1, info.max_input_len)));
  const std::int64_t q = config.num_heads * config.head_dim;
  const std::int64_t kv = config.num_kv_heads * config.head_dim;
  // Float rows; and the inputs of linear layers once more, as float32 and as bfloat16 with their sums.
  const std::int64_t widest = std::max({config.hidden_size, q, config.intermediate_size});
  const std::int64_t row_bytes =
      4 * (4 * config.hidden_size + 2 * q + 2 * kv + 2 * config.intermediate_size) + 8 * widest;
  const std::int64_t logits = info.max_batch_size * (config.vocab_size + 2 * config.hidden_size) * 4;
  return static_cast<std::uint64_t>(tokens * row_bytes + logits);
}

Result<EngineInfo> limits_of(const BuildFlags& flags, const ModelConfig& config) {
  EngineInfo info;
  if (flags.max_batch_size == 0 && flags.max_input_len == 0 && flags.max_output_len == 0) return info;
  // What is not said takes trtllm-build's former default, or what the context leaves.
  constexpr std::int64_t kUsualLen = 1024;
  info.max_batch_size = flags.max_batch_size > 0 ? flags.max_batch_size : flags.model.max_num_seqs;
  info.max_output_len = flags.max_output_len;
  info.max_input_len = flags.max_input_len;
  if (info.max_input_len == 0)
    info.max_input_len = std::clamp<std::int64_t>(config.context_length - info.max_output_len, 1, kUsualLen);
  if (info.max_output_len == 0)
    info.max_output_len = std::clamp<std::int64_t>(config.context_length - info.max_input_len, 1, kUsualLen);
  if (info.max_input_len + info.max_output_len > config.context_length) {
    return invalid(
        fmt::format("--max-input-len {} and --max-output-len {} are together more than this model's context "
                    "of {} tokens",
                    info.max_input_len, info.max_output_len, config.context_length),
        "max-input-len");
  }
  info.workspace_bytes = workspace_bytes(config, info, flags.model);
  return info;
}

void print_json(const std::string& path, std::uint64_t bytes, double seconds, const EngineInfo& info) {
  using Json = nlohmann::ordered_json;
  Json out{{"status", "built"},
           {"path", path},
           {"bytes", bytes},
           {"seconds", seconds},
           {"compute", info.compute},
           {"max_batch_size", info.max_batch_size},
           {"max_input_len", info.max_input_len},
           {"max_output_len", info.max_output_len},
           {"workspace_bytes", info.workspace_bytes},
           {"tuning", nullptr}};
  if (info.tuning.has_value()) {
    out["tuning"] = {{"threads", info.tuned_threads},
                     {"panel_rows", info.tuning->panel_rows},
                     {"parts_per_thread", info.tuning->parts_per_thread},
                     {"min_part_bytes", info.tuning->min_part_bytes},
                     {"max_part_bytes", info.tuning->max_part_bytes},
                     {"measurements", Json::array()}};
    for (const auto& measured : info.measurements) {
      out["tuning"]["measurements"].push_back(
          {{"what", measured.what}, {"default_ms", measured.default_ms}, {"tuned_ms", measured.tuned_ms}});
    }
  }
  fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
}

Status build(const BuildFlags& flags) {
  QUIRE_RETURN_IF_ERROR(set_log_level_by_name(flags.model.log_level));
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error to report
  const auto begun = std::chrono::steady_clock::now();
  QUIRE_TRY(const std::string asked, asked_model(flags.model));
  QUIRE_TRY(const std::string model_path, resolve_model(asked));
  QUIRE_TRY(const auto checkpoint, open_checkpoint(model_path));
  QUIRE_TRY(const ModelConfig config, read_model_config(*checkpoint));
  QUIRE_TRY(EngineInfo info, limits_of(flags, config));
  QUIRE_TRY(const ComputePlan plan, plan_compute(flags.model, *checkpoint, nullptr));
  QUIRE_TRY(auto backend, make_backend("cpu", plan.options));
  QUIRE_TRY(const std::string path, output_path(flags.output));
  const auto note = [&](const std::string& text) {
    if (!flags.json) fmt::print(stderr, "{}\n", text);
  };
  note(fmt::format("compute {}: {}; weights {}", compute_mode_name(plan.compute.mode), plan.compute.reason,
                   plan.hold_as_reason));
  info.quire_version = QUIRE_VERSION;
  info.compute = compute_mode_name(plan.compute.mode);
  info.dtype = plan.hold_as.has_value() ? dtype_name(*plan.hold_as) : "";

  // Complete, but not yet under its name: the measurements are still to come.
  const std::string unnamed = path + ".building";
  {
    QUIRE_TRY(auto writer, EngineWriter::create(unnamed));
    writer->add_checkpoint(*checkpoint);
    LoadOptions load;
    load.weight_dtype = plan.hold_as;
    load.engine_writer = writer.get();
    load.max_model_len = 1;  // the table of rotations is made at each start
    const auto bar = flags.json ? std::function<void(double)>([](double) {}) : progress_bar("packing");
    load.progress = [&bar](std::size_t done, std::size_t total) {
      bar(total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total));
    };
    const auto model = load_model(*checkpoint, *backend, load);
    if (!model.ok()) return model.error();
    QUIRE_RETURN_IF_ERROR(
        writer->finish(make_engine_key(*checkpoint, *backend, plan.hold_as), info, /*durable=*/true));
    bar(1.0);
  }
  const auto give_up = [&](const Error& error) {
    std::error_code ignored;
    fs::remove(unnamed, ignored);
    return error;
  };
  if (!flags.no_tuning) {
    auto engine = EngineFile::open(unnamed);
    if (!engine.ok()) return give_up(engine.error());
    TuneShapes shapes;
    if (info.max_batch_size > 0) shapes.batch_size = std::min(info.max_batch_size, kLargestTunedBatch);
    const std::int64_t longest = info.max_input_len > 0 ? info.max_input_len : config.context_length;
    shapes.input_len = std::min(longest, kLongestTunedPrompt);
    shapes.context_len = std::min(shapes.context_len, shapes.input_len);
    shapes.context_len = std::min(shapes.context_len, config.context_length - 1);
    auto tuned = tune(**engine, *checkpoint, plan.options, plan.hold_as, shapes,
                      flags.json ? [](double) {} : progress_bar("tuning"));
    if (!tuned.ok()) return give_up(tuned.error());
    info.tuning = tuned->tuning;
    info.tuned_threads = plan.options.num_threads;
    info.measurements = std::move(tuned->measurements);
    engine->reset();
    const Status replaced = replace_engine_info(unnamed, info);
    if (!replaced.ok()) return give_up(replaced.error());
  }
  std::error_code error;
  const std::uint64_t bytes = fs::file_size(unnamed, error);
  fs::rename(unnamed, path, error);
  if (error)
    return give_up(make_error(ErrorCode::kIo, fmt::format("cannot write {}: {}", path, error.message())));

  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  if (flags.json) {
    print_json(path, bytes, seconds, info);
    return {};
  }
  for (const std::string& line : engine_info_lines(info)) note(line);
  fmt::print("{} is built ({}, {:.1f} s): serve it with `quire serve --engine-dir {}`\n", checkpoint->name,
             memory_text(bytes), seconds, flags.output);
  return {};
}

}  // namespace

void add_build_command(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("build", "Pack a model for this machine into one file, and tune for it");
  auto flags = std::make_shared<BuildFlags>();
  command->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  command->add_option("MODEL", flags->model.model_arg,
                      "A name of the catalogue, a GGUF file, or a checkpoint folder");
  command->add_option("--model", flags->model.model, "The same as MODEL");
  command->add_option("-o,--output,--output-dir,--output_dir", flags->output, "FILE.qengine, or a folder")
      ->required();
  command->add_option("--compute", flags->model.compute, "Precision of activations: auto, f32, bf16 or int8")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "int8"}))
      ->capture_default_str();
  command
      ->add_option("--dtype", flags->model.dtype,
                   "Type of weights that are not quantized: auto, bfloat16, float16, float32")
      ->capture_default_str();
  command
      ->add_option("--threads", flags->model.threads,
                   "Threads to pack and to tune with; 0 = all CPUs this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  const CLI::Range sizes(std::int64_t{1}, std::int64_t{1} << 24);
  command
      ->add_option("--max-batch-size,--max_batch_size", flags->max_batch_size,
                   "Sequences at once: tuned for, and the default of --max-num-seqs")
      ->check(CLI::Range(1, 65536));
  command
      ->add_option("--max-input-len,--max_input_len", flags->max_input_len,
                   "Longest prompt: tuned for; with --max-output-len the default of --max-model-len")
      ->check(sizes);
  command->add_option("--max-output-len,--max_output_len", flags->max_output_len, "Longest answer")
      ->check(sizes);
  command->add_flag("--no-tuning", flags->no_tuning, "Keep the default sizes, measure nothing");
  command->add_flag("--json", flags->json, "Print one JSON object, no progress");
  command->add_option("--log-level", flags->model.log_level, "debug, info, warning, error or off")
      ->capture_default_str();
  command->callback([flags, exit_code] {
    const Status status = build(*flags);
    *exit_code = status.ok() ? 0 : report_error(status.error());
  });
}

}  // namespace quire
