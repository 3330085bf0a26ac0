// Purpose: what a handler needs of the model that is served, filled once by apps/ when loading has ended.
// Thread: immutable after that; any connection reads it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/json.h"
#include "engine/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quire {

// What a request that does not say gets: the model's generation_config.json (--generation-config auto), else
// vLLM's defaults.
struct SamplingDefaults {
  double temperature = 1.0;
  double top_p = 1.0;
  std::int64_t top_k = 0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
};

struct ServedModel {
  std::vector<std::string> names;  // what requests may call it; the first one stands in answers
  std::string root;                // the checkpoint's name, without its folder
  Engine* engine = nullptr;
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;  // null = none: chat requests are refused,
  std::string chat_template_problem;            // with this reason
  std::vector<std::int32_t> eos_ids;
  SamplingDefaults defaults;
  KvEviction eviction;  // of requests that name none
  std::int64_t max_model_len = 0;
  std::int64_t vocab_size = 0;  // ids below this may be fed to the model
  std::int64_t created = 0;     // Unix seconds
  // Names the machine, build, weights and flags that decide an answer's bits (contract of exactness).
  std::string system_fingerprint;
  Json info;  // /v1/engine: everything chosen at start, and why

  bool answers_to(const std::string& name) const {
    for (const std::string& own : names) {
      if (own == name) return true;
    }
    return false;
  }
};

struct ApiOptions {
  std::string version;
  std::vector<std::string> api_keys;  // empty = open to all
  std::int64_t max_logprobs = 20;
  bool trust_request_chat_template = false;
  // Control tokens spelled in messages become those tokens, as in Hugging Face; lets a message forge a turn.
  bool control_tokens_in_messages = false;
  bool log_requests = false;
  double engine_stall_seconds = 120;  // /health fails when work waits and no step has ended for this long
};

}  // namespace quire
