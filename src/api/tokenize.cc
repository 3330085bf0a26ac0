// /tokenize and /detokenize in vLLM's form ({"prompt"} or {"messages"}) and in llama-server's ({"content"}),
// told apart by their fields; vLLM's load generator and llama.cpp's clients both call them.
#include <utility>

#include "api/chat_messages.h"
#include "api/error_body.h"
#include "api/routes.h"
#include "api/submit.h"
#include "text/utf8.h"

namespace quire {
namespace {

// llama-server: a piece is a string, or its bytes if it is no whole character.
Json piece_json(const Tokenizer& tokenizer, std::int32_t id) {
  const std::string bytes = tokenizer.token_bytes(id);
  if (is_valid_utf8(bytes)) return bytes;
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<int>(static_cast<unsigned char>(byte)));
  return list;
}

Result<Json> tokenize_content(FieldReader& fields, const ServedModel& model) {
  std::string content;
  EncodeOptions options{false, true};
  bool with_pieces = false;
  fields.string("content", content);
  fields.boolean("add_special", options.add_special_tokens);
  fields.boolean("parse_special", options.parse_special);
  fields.boolean("with_pieces", with_pieces);
  QUIRE_RETURN_IF_ERROR(fields.status());
  const auto ids = model.tokenizer->encode(content, options);
  Json tokens = Json::array();
  for (const std::int32_t id : ids) {
    if (with_pieces) {
      tokens.push_back({{"id", id}, {"piece", piece_json(*model.tokenizer, id)}});
    } else {
      tokens.push_back(id);
    }
  }
  return Json{{"tokens", std::move(tokens)}};
}

Result<Json> tokenize_prompt(FieldReader& fields, const ServedModel& model, const ApiOptions& options) {
  const bool chat = fields.find("messages") != nullptr;
  bool add_special = !chat;
  bool return_strings = false;
  fields.boolean("add_special_tokens", add_special);
  fields.boolean("return_token_strs", return_strings);
  PromptTokens prompt;
  if (chat) {
    const ChatPrompt messages = read_chat_prompt(fields, model, options);
    QUIRE_RETURN_IF_ERROR(fields.status());
    QUIRE_TRY(prompt, encode_chat(messages, add_special, model, options));
  } else {
    std::string text;
    fields.string("prompt", text);
    QUIRE_RETURN_IF_ERROR(fields.status());
    prompt.ids = model.tokenizer->encode(text, {add_special, true});
  }
  Json strings = nullptr;
  if (return_strings) {
    strings = Json::array();
    for (const std::int32_t id : prompt.ids) strings.push_back(std::string(model.tokenizer->token_piece(id)));
  }
  Json out;
  out["count"] = prompt.ids.size();
  out["max_model_len"] = model.max_model_len;
  out["tokens"] = std::move(prompt.ids);
  out["token_strs"] = std::move(strings);
  return out;
}

Result<Json> tokenize(const Json& body, const ServedModel& model, const ApiOptions& options) {
  FieldReader fields(body);
  QUIRE_RETURN_IF_ERROR(fields.status());
  std::string name;
  fields.string("model", name);
  if (!name.empty() && !model.answers_to(name)) return unknown_model(name);
  if (fields.find("content") != nullptr) return tokenize_content(fields, model);
  if (fields.find("prompt") == nullptr && fields.find("messages") == nullptr) {
    fields.fail("prompt", "is missing; \"messages\" or \"content\" would do as well.");
  }
  return tokenize_prompt(fields, model, options);
}

Result<Json> detokenize(const Json& body, const ServedModel& model, const ApiOptions&) {
  FieldReader fields(body);
  std::string name;
  fields.string("model", name);
  if (!name.empty() && !model.answers_to(name)) return unknown_model(name);
  std::vector<std::int32_t> ids;
  if (fields.ok() && fields.find("tokens") == nullptr) fields.fail("tokens", "is missing.");
  fields.ids("tokens", ids, model.vocab_size, kMaxJsonValues);
  QUIRE_RETURN_IF_ERROR(fields.status());
  const std::string text = replace_invalid_utf8(model.tokenizer->decode(ids, false));
  Json out;
  out["prompt"] = text;   // vLLM
  out["content"] = text;  // llama-server
  return out;
}

void answer(const Call& call, Result<Json> (*work)(const Json&, const ServedModel&, const ApiOptions&)) {
  const auto body = parse_json(call.request.body);
  const auto result = body.ok() ? work(*body, *call.model, call.api.options()) : Result<Json>(body.error());
  if (!result.ok()) {
    call.writer.send(error_response(result.error()));
    return;
  }
  HttpResponse response;
  response.body = dump_json(*result);
  call.writer.send(response);
}

}  // namespace

void handle_tokenize(const Call& call) {
  answer(call, tokenize);
}

void handle_detokenize(const Call& call) {
  answer(call, detokenize);
}

}  // namespace quire
