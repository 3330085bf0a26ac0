// Purpose: what serve, generate and chat have in common: the flags of a model, and everything from its name
// to a running engine. Thread: the main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "api/generate_request.h"
#include "api/served_model.h"
#include "backend/backend.h"
#include "base/result.h"
#include "engine/engine.h"
#include "loader/checkpoint.h"
#include "model/engine_file.h"
#include "model/model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quire {

struct ModelFlags {
  std::string model;      // --model
  std::string model_arg;  // or the positional
  std::string tokenizer;
  std::string chat_template;
  std::string generation_config = "auto";
  std::string backend = "cpu";
  std::string compute = "auto";
  std::string dtype = "auto";
  int threads = 0;  // 0 = all that this process may use
  std::string max_model_len = "auto";
  std::string engine_dir;
  std::string engine_cache;  // "" = the environment's, else the usual place
  std::int64_t max_num_seqs = 128;
  bool max_num_seqs_given = false;
  std::int64_t max_num_batched_tokens = 2048;
  std::int64_t block_size = 16;
  std::int64_t kv_blocks = 0;
  std::string kv_cache_memory;
  std::string kv_cache_dtype = "auto";
  std::int64_t max_num_queued_reqs = 0;
  std::string kv_eviction = "none";  // the flag; load_for_serving makes eviction.policy of it
  KvEviction eviction;
  std::optional<std::uint64_t> seed;
  std::string log_level = "info";
};

void add_model_flags(CLI::App& command, ModelFlags& flags);
// --kv-eviction, --kv-sinks, --kv-window: what requests get that do not say (ServedModel::eviction).
void add_eviction_flags(CLI::App& command, ModelFlags& flags);

// Everything a request needs. Members are destroyed in the right order: engine first.
struct LoadedModel {
  std::unique_ptr<EngineFile> engine_file;  // what the weights lie in, or null
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<Engine> engine;  // started
  ServedModel served;
  std::vector<std::string> report;  // the start-up report, one line each
};

// The model that the command line names; "" with --engine-dir.
Result<std::string> asked_model(const ModelFlags& flags);

// progress: called with the share of the weights that is loaded, 0 to 1.
Result<std::unique_ptr<LoadedModel>> load_for_serving(const ModelFlags& flags,
                                                      const std::function<void(double)>& progress,
                                                      std::function<void(const StepReport&)> on_step);

// A bar on stderr if that is a terminal, else nothing. Ends its line when it reaches 1.
std::function<void(double)> progress_bar(const std::string& label);

Status set_log_level_by_name(const std::string& name);
// "32k" is 32,000 and "32K" 32,768, as in vLLM; also m/M, g/G.
Result<std::int64_t> parse_count(const std::string& text, const std::string& flag);

// Sampling flags of generate and chat; what is not given comes from the model.
struct SamplingFlags {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<std::int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::optional<std::int64_t> max_tokens;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};
void add_sampling_flags(CLI::App& command, SamplingFlags& flags);
// A request with these settings and no prompt yet.
Result<GenerateRequest> make_request(const SamplingFlags& flags, const ModelFlags& model_flags,
                                     const ServedModel& model);

}  // namespace quire
