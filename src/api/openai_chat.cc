#include "api/openai_chat.h"

#include <chrono>
#include <utility>

#include "api/chat_messages.h"
#include "api/common_fields.h"
#include "api/generate_endpoint.h"
#include "api/logprob_json.h"
#include "api/routes.h"
#include "net/sse.h"

namespace quire {
namespace {

void read_logprobs(FieldReader& fields, const ApiOptions& options, GenerateRequest& request) {
  bool logprobs = false;
  fields.boolean("logprobs", logprobs);
  std::optional<std::int64_t> top;
  fields.integer("top_logprobs", top, {0, options.max_logprobs});
  if (top && !logprobs) fields.fail("top_logprobs", "is only allowed together with \"logprobs\": true.");
  if (logprobs) request.sampling.num_logprobs = top.value_or(0);
}

void read_max_tokens(FieldReader& fields, GenerateRequest& request) {
  std::optional<std::int64_t> old_name;
  fields.saturating("max_completion_tokens", request.max_tokens, {1});
  fields.saturating("max_tokens", old_name, {1});
  if (!request.max_tokens) request.max_tokens = old_name;
}

}  // namespace

Result<GenerateRequest> parse_chat_request(const Json& body, std::string id, const ServedModel& model,
                                           const ApiOptions& options) {
  FieldReader fields(body);
  GenerateRequest request;
  request.id = std::move(id);
  // A template writes the beginning of its prompt itself.
  request.add_special_tokens = false;
  read_common_fields(fields, model, options, request);
  if (fields.ok() && !request.model.empty() && !model.answers_to(request.model)) {
    return unknown_model(request.model);
  }
  read_logprobs(fields, options, request);
  read_max_tokens(fields, request);
  // "Text out" is all there is; naming it is fine.
  fields.refuse("modalities", "only text is produced.", Json::array({"text"}));
  fields.refuse("audio", "only text is produced.");
  fields.refuse("prediction", "predicted output is not offered.");
  fields.refuse("functions", "use \"tools\".");
  fields.refuse("function_call", "use \"tool_choice\".");
  fields.refuse("web_search_options", "the server does not search.");
  fields.refuse("verbosity", "say it in the messages.", "medium");
  fields.accept("include_reasoning");
  request.chat = read_chat_prompt(fields, model, options);
  QUIRE_RETURN_IF_ERROR(fields.status());
  QUIRE_RETURN_IF_ERROR(check_request(request));
  request.ignored_fields = fields.unknown();
  return request;
}

ChatFormat::ChatFormat(const GenerateRequest& request, const Submission& submission, const ServedModel& model)
    : request_(request),
      submission_(submission),
      model_(model),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      // vLLM's echo: the answer begins with the message that it continues.
      echo_(request.echo && request.chat->continue_final_message ? request.chat->final_text : std::string()) {
}

Json ChatFormat::chunk() const {
  Json out;
  out["id"] = request_.id;
  out["object"] = "chat.completion.chunk";
  out["created"] = created_;
  out["model"] = model_.names.front();
  out["system_fingerprint"] = model_.system_fingerprint;
  return out;
}

Json ChatFormat::logprobs_of(const TextDelta& delta) const {
  if (request_.sampling.num_logprobs < 0) return nullptr;
  Json out;
  out["content"] = chat_logprobs(delta.logprobs, request_.sampling.num_logprobs, *model_.tokenizer,
                                 request_.tokens_as_ids);
  out["refusal"] = nullptr;
  return out;
}

void ChatFormat::append_choice(const TextDelta& delta, Json message, bool last, const Usage* usage,
                               std::string& out) const {
  Json choice;
  choice["index"] = delta.choice;
  choice["delta"] = std::move(message);
  choice["logprobs"] = delta.logprobs.empty() ? Json(nullptr) : logprobs_of(delta);
  choice["finish_reason"] = last ? Json(delta.finish_reason) : Json(nullptr);
  if (last) choice["stop_reason"] = stop_reason_json(delta);
  if (request_.return_token_ids) choice["token_ids"] = delta.ids;
  Json event = chunk();
  event["choices"] = Json::array({std::move(choice)});
  if (request_.return_token_ids && delta.first) event["prompt_token_ids"] = submission_.prompts.front().ids;
  if (usage != nullptr) {
    event["usage"] = usage_json(*usage);
  } else if (request_.include_usage) {
    event["usage"] = nullptr;
  }
  out += sse_event(dump_json(event));
}

void ChatFormat::append_events(const TextDelta& delta, const Usage* usage, std::string& out) {
  if (delta.first) {
    // Leaves in one write with the first token: a role alone would make the time to first token look better
    // than it is.
    TextDelta role;
    role.choice = delta.choice;
    role.first = true;
    append_choice(role, {{"role", "assistant"}, {"content", echo_}}, false, usage, out);
  }
  const bool last = !delta.finish_reason.empty();
  const bool has_details = !delta.logprobs.empty() || (request_.return_token_ids && !delta.ids.empty());
  // The last event has an empty delta, so what comes with the last token goes before it.
  if (!delta.text.empty() || has_details) {
    TextDelta content = delta;
    content.first = false;
    append_choice(content, {{"content", delta.text}}, false, usage, out);
  }
  if (last) {
    TextDelta end;
    end.choice = delta.choice;
    end.finish_reason = delta.finish_reason;
    end.stop_reason = delta.stop_reason;
    append_choice(end, Json::object(), true, usage, out);
  }
}

void ChatFormat::append_usage_event(const Usage& usage, std::string& out) {
  Json event = chunk();
  event["choices"] = Json::array();
  event["usage"] = usage_json(usage);
  out += sse_event(dump_json(event));
}

Json ChatFormat::whole(const std::vector<TextDelta>& answers, const Usage& usage) {
  Json out = chunk();
  out["object"] = "chat.completion";
  Json choices = Json::array();
  for (const TextDelta& answer : answers) {
    Json choice;
    choice["index"] = answer.choice;
    choice["message"] = {{"role", "assistant"}, {"content", echo_ + answer.text}, {"refusal", nullptr}};
    choice["logprobs"] = logprobs_of(answer);
    choice["finish_reason"] = answer.finish_reason;
    choice["stop_reason"] = stop_reason_json(answer);
    if (request_.return_token_ids) choice["token_ids"] = answer.ids;
    choices.push_back(std::move(choice));
  }
  out["choices"] = std::move(choices);
  out["usage"] = usage_json(usage);
  if (request_.want_prompt_logprobs) {
    out["prompt_logprobs"] = prompt_logprobs_json(answers.front().prompt_logprobs, *model_.tokenizer);
  }
  if (request_.return_token_ids) out["prompt_token_ids"] = submission_.prompts.front().ids;
  return out;
}

Json usage_json(const Usage& usage) {
  Json out;
  out["prompt_tokens"] = usage.prompt_tokens;
  out["completion_tokens"] = usage.completion_tokens;
  out["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  out["prompt_tokens_details"] = {{"cached_tokens", usage.cached_tokens}};
  return out;
}

Json stop_reason_json(const TextDelta& delta) {
  if (const auto* id = std::get_if<std::int32_t>(&delta.stop_reason)) return *id;
  if (const auto* text = std::get_if<std::string>(&delta.stop_reason)) return *text;
  return nullptr;
}

void handle_chat_completions(const Call& call) {
  handle_generate<ChatFormat>(call, "chatcmpl", parse_chat_request);
}

}  // namespace quire
