// Purpose: from a validated GenerateRequest to TokenRequests in the engine: render, tokenize, check lengths
// (step 3 of the river). In: GenerateRequest. Out: Submission. Thread: the connection's.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/generate_request.h"
#include "api/served_model.h"
#include "base/result.h"
#include "engine/token_stream.h"

namespace quire {

struct PromptTokens {
  std::vector<std::int32_t> ids;
  std::string text;  // for echo: as sent, or what the ids spell
};

// What the engine was given, and what reply.cc needs to read it back.
struct Submission {
  std::shared_ptr<TokenStream> stream;  // choice = prompt * n + i
  std::vector<PromptTokens> prompts;
  SamplingParams sampling;  // as submitted (of prompt 0; max_tokens may differ per prompt)
  std::chrono::steady_clock::time_point submitted;
};

// Renders and tokenizes one chat prompt.
Result<PromptTokens> encode_chat(const ChatPrompt& chat, bool add_special_tokens, const ServedModel& model,
                                 const ApiOptions& options);
Result<Submission> submit(const GenerateRequest& request, const ServedModel& model,
                          const ApiOptions& options);

}  // namespace quire
