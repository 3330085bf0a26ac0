// Purpose: /v1/chat/completions: JSON to GenerateRequest, and answers back to JSON. Thread: any.
#pragma once

#include <cstdint>
#include <string>

#include "api/reply.h"

namespace quire {

Result<GenerateRequest> parse_chat_request(const Json& body, std::string id, const ServedModel& model,
                                           const ApiOptions& options);

// The shapes "chat.completion" and "chat.completion.chunk".
class ChatFormat final : public ReplyFormat {
 public:
  ChatFormat(const GenerateRequest& request, const Submission& submission, const ServedModel& model);
  void append_events(const TextDelta& delta, const Usage* usage, std::string& out) override;
  void append_usage_event(const Usage& usage, std::string& out) override;
  Json whole(const std::vector<TextDelta>& answers, const Usage& usage) override;

 private:
  Json chunk() const;
  Json logprobs_of(const TextDelta& delta) const;
  void append_choice(const TextDelta& delta, Json message, bool last, const Usage* usage,
                     std::string& out) const;

  const GenerateRequest& request_;
  const Submission& submission_;
  const ServedModel& model_;
  const std::int64_t created_;
  const std::string echo_;
};

Json usage_json(const Usage& usage);
Json stop_reason_json(const TextDelta& delta);

}  // namespace quire
