// Purpose: what the endpoints that generate have in common: parse, submit, deliver, and tell errors.
// In: a Call. Out: an answer. Thread: the connection's.
#pragma once

#include <string_view>

#include "api/error_body.h"
#include "api/reply.h"
#include "api/routes.h"
#include "api/submit.h"

namespace quire {

// Rules between fields, once all are read.
Status check_request(const GenerateRequest& request);

using ParseRequest = Result<GenerateRequest> (*)(const Json& body, std::string id, const ServedModel& model,
                                                 const ApiOptions& options);
// Parses the body; answers with the error if it cannot be used.
std::optional<GenerateRequest> parse_or_answer(const Call& call, std::string_view id_prefix,
                                               ParseRequest parse);
std::optional<Submission> submit_or_answer(const Call& call, const GenerateRequest& request);

template <typename Format>
void handle_generate(const Call& call, std::string_view id_prefix, ParseRequest parse) {
  const auto request = parse_or_answer(call, id_prefix, parse);
  if (!request) return;
  const auto submission = submit_or_answer(call, *request);
  if (!submission) return;
  Format format(*request, *submission, *call.model);
  deliver(*request, *submission, *call.model, call.api.options(), &call.api.metrics(), format, call.writer);
}

}  // namespace quire
