// Purpose: /v1/completions: JSON to GenerateRequest, and answers back to JSON. Thread: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/logprob_json.h"
#include "api/reply.h"

namespace quire {

Result<GenerateRequest> parse_completion_request(const Json& body, std::string id, const ServedModel& model,
                                                 const ApiOptions& options);

// The shape "text_completion", whole and in pieces.
class CompletionFormat final : public ReplyFormat {
 public:
  CompletionFormat(const GenerateRequest& request, const Submission& submission, const ServedModel& model);
  void append_events(const TextDelta& delta, const Usage* usage, std::string& out) override;
  void append_usage_event(const Usage& usage, std::string& out) override;
  Json whole(const std::vector<TextDelta>& answers, const Usage& usage) override;

 private:
  Json head() const;
  const PromptTokens& prompt_of(std::int32_t choice) const;
  Json choice_json(const TextDelta& delta);

  const GenerateRequest& request_;
  const Submission& submission_;
  const ServedModel& model_;
  const std::int64_t created_;
  std::vector<CompletionLogprobs> logprobs_;  // per choice
};

}  // namespace quire
