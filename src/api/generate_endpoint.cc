#include "api/generate_endpoint.h"

#include <utility>

#include <fmt/format.h>

#include "api/field_reader.h"
#include "base/log.h"

namespace quire {

Status check_request(const GenerateRequest& request) {
  if (request.max_tokens && request.sampling.min_tokens > *request.max_tokens) {
    return invalid(fmt::format("'min_tokens' ({}) must not be larger than 'max_tokens' ({}).",
                               request.sampling.min_tokens, *request.max_tokens),
                   "min_tokens");
  }
  const auto num_prompts = static_cast<std::int64_t>(request.chat ? 1 : request.prompts.size());
  if (num_prompts * request.n > kMaxTotalChoices) {
    return invalid(fmt::format("'n' ({}) times the number of prompts ({}) must not be larger than {}.",
                               request.n, num_prompts, kMaxTotalChoices),
                   "n");
  }
  return {};
}

std::optional<GenerateRequest> parse_or_answer(const Call& call, std::string_view id_prefix,
                                               ParseRequest parse) {
  const auto body = parse_json(call.request.body);
  if (!body.ok()) {
    call.writer.send(error_response(body.error()));
    return std::nullopt;
  }
  auto request = parse(*body, call.api.new_id(id_prefix), *call.model, call.api.options());
  if (!request.ok()) {
    call.writer.send(error_response(request.error()));
    return std::nullopt;
  }
  if (!request->ignored_fields.empty()) {
    log_debug("{}: fields not known and not used: {}", request->id,
              show_field_names(request->ignored_fields));
  }
  return std::move(*request);
}

std::optional<Submission> submit_or_answer(const Call& call, const GenerateRequest& request) {
  auto submission = submit(request, *call.model, call.api.options());
  if (!submission.ok()) {
    const Error& error = submission.error();
    if (error.code == ErrorCode::kOverloaded) call.api.metrics().count_rejection("queue_full");
    if (call.api.options().log_requests) log_info("{}: refused, {}", request.id, http_status(error));
    call.writer.send(error_response(error));
    return std::nullopt;
  }
  if (call.api.options().log_requests) {
    std::size_t prompt_tokens = 0;
    for (const PromptTokens& prompt : submission->prompts) prompt_tokens += prompt.ids.size();
    const SamplingParams& sampling = submission->sampling;
    log_info("{}: {} prompt tokens, n={} max_tokens={} temperature={} top_p={} top_k={} stream={}",
             request.id, prompt_tokens, request.n, sampling.max_tokens, sampling.temperature, sampling.top_p,
             sampling.top_k, request.stream);
  }
  return std::move(*submission);
}

}  // namespace quire
