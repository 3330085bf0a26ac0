// Purpose: one request to generate, validated, whichever protocol it came by (type 2 of the river). Made in
// openai_chat.cc and openai_completions.cc (and in apps/ for the command line), read by submit.cc and
// reply.cc. No protocol's JSON after this; what is left of it is the data that a chat template prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/json.h"
#include "engine/kv_eviction.h"
#include "engine/sampling_params.h"

namespace quire {

// Fixed caps, documented in docs/flow.md; beyond them a request is refused.
inline constexpr std::int64_t kMaxChoices = 128;        // n
inline constexpr std::size_t kMaxPrompts = 1024;        // prompts of one completions request
inline constexpr std::int64_t kMaxTotalChoices = 1024;  // prompts x n
inline constexpr std::size_t kMaxStopStrings = 32;
inline constexpr std::size_t kMaxStopBytes = 1024;  // of one stop string
inline constexpr std::size_t kMaxStopTokenIds = 128;
inline constexpr std::size_t kMaxBadWords = 256;
inline constexpr std::size_t kMaxBadWordBytes = 256;
inline constexpr std::size_t kMaxLogitBias = 1024;
inline constexpr std::int64_t kDefaultCompletionTokens = 16;  // OpenAI's and vLLM's default of max_tokens

struct ChatPrompt {
  Json context;                         // the template's variables: messages, tools, ...
  bool continue_final_message = false;  // the prompt ends inside the last message
  std::string final_text;               // that message's content
  std::string template_override;        // request's own template, if that is allowed
};

struct TextPrompt {
  std::string text;
  std::vector<std::int32_t> ids;
  bool is_ids = false;
};

struct GenerateRequest {
  std::string id;     // "chatcmpl-...", "cmpl-..."
  std::string model;  // as asked; "" = not named
  std::optional<ChatPrompt> chat;
  std::vector<TextPrompt> prompts;  // without chat
  bool add_special_tokens = true;

  std::int64_t n = 1;
  // max_tokens, logprobs and the lists of ids are final only after submit().
  SamplingParams sampling;
  std::optional<std::int64_t> max_tokens;  // absent = as many as fit (chat), or kDefaultCompletionTokens
  std::vector<std::string> stop;
  bool include_stop_in_output = false;
  std::vector<std::string> bad_words;
  bool skip_special_tokens = true;
  std::int32_t priority = 0;
  KvEviction eviction;  // checked against the cache when submitted

  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool echo = false;
  bool return_token_ids = false;
  bool tokens_as_ids = false;         // tokens in logprobs are written "token_id:N"
  bool want_prompt_logprobs = false;  // the field, besides echo

  std::vector<std::string> ignored_fields;  // names sent that nothing here knows
};

}  // namespace quire
