#include "api/openai_completions.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "api/common_fields.h"
#include "api/generate_endpoint.h"
#include "api/openai_chat.h"
#include "api/routes.h"
#include "net/sse.h"

namespace quire {
namespace {

// Token ids of one prompt given as numbers.
std::vector<std::int32_t> read_ids(FieldReader& fields, const Json& list, const ServedModel& model) {
  std::vector<std::int32_t> ids;
  ids.reserve(list.size());
  for (const Json& entry : list) {
    const auto id = whole_number(entry);
    if (!id || *id < 0 || *id >= model.vocab_size) {
      fields.fail("prompt", fmt::format("must hold token ids from 0 to {}; got {}.", model.vocab_size - 1,
                                        describe_json(entry)));
      break;
    }
    ids.push_back(static_cast<std::int32_t>(*id));
  }
  return ids;
}

// A string, a list of strings, a list of ids, or a list of lists of ids.
void read_prompt(FieldReader& fields, const ServedModel& model, GenerateRequest& request) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) return fields.fail("prompt", "is missing.");
  if (prompt->is_string()) {
    request.prompts.push_back({prompt->get<std::string>(), {}, false});
    return;
  }
  if (!prompt->is_array()) {
    return fields.fail_type("prompt", "a string, an array of strings, or token ids", *prompt);
  }
  if (prompt->empty()) return fields.fail("prompt", "must not be empty.");
  if (!prompt->front().is_string() && !prompt->front().is_array()) {
    request.prompts.push_back({"", read_ids(fields, *prompt, model), true});
    return;
  }
  if (prompt->size() > kMaxPrompts) {
    return fields.fail("prompt",
                       fmt::format("has {} prompts; at most {} are allowed.", prompt->size(), kMaxPrompts));
  }
  const bool strings = prompt->front().is_string();
  for (const Json& one : *prompt) {
    if (strings ? !one.is_string() : !one.is_array()) {
      return fields.fail_type("prompt", "strings only, or arrays of token ids only", one);
    }
    if (strings) {
      request.prompts.push_back({one.get<std::string>(), {}, false});
    } else if (one.empty()) {
      return fields.fail("prompt", "must not hold an empty prompt.");
    } else {
      request.prompts.push_back({"", read_ids(fields, one, model), true});
    }
    if (!fields.ok()) return;
  }
}

}  // namespace

Result<GenerateRequest> parse_completion_request(const Json& body, std::string id, const ServedModel& model,
                                                 const ApiOptions& options) {
  FieldReader fields(body);
  GenerateRequest request;
  request.id = std::move(id);
  read_common_fields(fields, model, options, request);
  if (fields.ok() && !request.model.empty() && !model.answers_to(request.model)) {
    return unknown_model(request.model);
  }
  fields.saturating("max_tokens", request.max_tokens, {0});
  std::optional<std::int64_t> logprobs;
  fields.integer("logprobs", logprobs, {0, options.max_logprobs});
  if (logprobs) request.sampling.num_logprobs = *logprobs;
  if (request.echo && logprobs) {
    request.sampling.num_prompt_logprobs = std::max(request.sampling.num_prompt_logprobs, *logprobs);
  }
  if (request.max_tokens && *request.max_tokens == 0 && !request.echo) {
    fields.fail("max_tokens", "may be 0 only together with \"echo\": true, which scores the prompt.");
  }
  fields.refuse("suffix", "filling in between two texts is not offered.", "");
  read_prompt(fields, model, request);
  QUIRE_RETURN_IF_ERROR(fields.status());
  QUIRE_RETURN_IF_ERROR(check_request(request));
  request.ignored_fields = fields.unknown();
  return request;
}

CompletionFormat::CompletionFormat(const GenerateRequest& request, const Submission& submission,
                                   const ServedModel& model)
    : request_(request),
      submission_(submission),
      model_(model),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      logprobs_(static_cast<std::size_t>(submission.stream->num_choices()),
                CompletionLogprobs(*model.tokenizer, request.tokens_as_ids)) {}

Json CompletionFormat::head() const {
  Json out;
  out["id"] = request_.id;
  out["object"] = "text_completion";
  out["created"] = created_;
  out["model"] = model_.names.front();
  out["system_fingerprint"] = model_.system_fingerprint;
  return out;
}

const PromptTokens& CompletionFormat::prompt_of(std::int32_t choice) const {
  return submission_.prompts[static_cast<std::size_t>(choice / request_.n)];
}

Json CompletionFormat::choice_json(const TextDelta& delta) {
  const PromptTokens& prompt = prompt_of(delta.choice);
  const bool echo = request_.echo && delta.first;
  Json choice;
  choice["index"] = delta.choice;
  choice["text"] = echo ? prompt.text + delta.text : delta.text;
  choice["logprobs"] = nullptr;
  if (request_.sampling.num_logprobs >= 0) {
    CompletionLogprobs& logprobs = logprobs_[static_cast<std::size_t>(delta.choice)];
    if (echo) {
      for (std::size_t i = 0; i < prompt.ids.size(); ++i) {
        logprobs.add(prompt.ids[i],
                     i < delta.prompt_logprobs.size() ? delta.prompt_logprobs[i] : std::nullopt);
      }
    }
    for (std::size_t i = 0; i < delta.logprobs.size(); ++i) logprobs.add(delta.ids[i], delta.logprobs[i]);
    if (echo || !delta.logprobs.empty() || !request_.stream) choice["logprobs"] = logprobs.take();
  }
  choice["finish_reason"] = delta.finish_reason.empty() ? Json(nullptr) : Json(delta.finish_reason);
  choice["stop_reason"] = stop_reason_json(delta);
  if (request_.return_token_ids) {
    choice["token_ids"] = delta.ids;
    if (delta.first) choice["prompt_token_ids"] = prompt.ids;
  }
  return choice;
}

void CompletionFormat::append_events(const TextDelta& delta, const Usage* usage, std::string& out) {
  const bool empty = delta.text.empty() && delta.finish_reason.empty() && delta.logprobs.empty() &&
                     !(request_.echo && delta.first) && !(request_.return_token_ids && !delta.ids.empty());
  // A part of a character, or text held back for a stop string. The first token is still told, so that
  // clients measure when it came.
  if (empty && !delta.first) return;
  Json event = head();
  event["choices"] = Json::array({choice_json(delta)});
  if (usage != nullptr) {
    event["usage"] = usage_json(*usage);
  } else if (request_.include_usage) {
    event["usage"] = nullptr;
  }
  out += sse_event(dump_json(event));
}

void CompletionFormat::append_usage_event(const Usage& usage, std::string& out) {
  Json event = head();
  event["choices"] = Json::array();
  event["usage"] = usage_json(usage);
  out += sse_event(dump_json(event));
}

Json CompletionFormat::whole(const std::vector<TextDelta>& answers, const Usage& usage) {
  Json out = head();
  Json choices = Json::array();
  for (const TextDelta& answer : answers) {
    TextDelta all = answer;
    all.first = true;
    Json choice = choice_json(all);
    if (request_.want_prompt_logprobs) {
      choice["prompt_logprobs"] = prompt_logprobs_json(answer.prompt_logprobs, *model_.tokenizer);
    }
    choices.push_back(std::move(choice));
  }
  out["choices"] = std::move(choices);
  out["usage"] = usage_json(usage);
  return out;
}

void handle_completions(const Call& call) {
  handle_generate<CompletionFormat>(call, "cmpl", parse_completion_request);
}

}  // namespace quire
