#include "api/submit.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "text/utf8.h"

namespace quire {
namespace {

// Cuts the pieces behind the last appearance of text, so that the model goes on writing that message.
Status cut_after(std::vector<PromptPiece>& pieces, std::string text) {
  std::string whole;
  for (const PromptPiece& piece : pieces) whole += piece.text;
  std::size_t at = whole.rfind(text);
  if (at == std::string::npos) {  // templates often trim a message
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos) text = text.substr(first, text.find_last_not_of(" \t\r\n") + 1 - first);
    at = whole.rfind(text);
  }
  if (at == std::string::npos) {
    return invalid(
        "'continue_final_message' cannot be used: the chat template does not print the last message.",
        "continue_final_message");
  }
  std::size_t keep = at + text.size();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (keep <= pieces[i].text.size()) {
      pieces[i].text.resize(keep);
      pieces.resize(i + 1);
      break;
    }
    keep -= pieces[i].text.size();
  }
  return {};
}

Error too_long(std::size_t num_tokens, std::int64_t max_model_len) {
  // "context_length" as the parameter's kind: error_body.cc makes OpenAI's code of it.
  return make_error(
      ErrorCode::kTooLarge,
      fmt::format("The prompt has {} tokens and this model's maximum context length is {} tokens, "
                  "of which at least one must be left for the answer. Shorten the prompt.",
                  num_tokens, max_model_len),
      "prompt");
}

// Word and " word": both ways a vocabulary may hold it.
std::vector<std::vector<std::int32_t>> encode_bad_words(const std::vector<std::string>& words,
                                                        const Tokenizer& tokenizer) {
  std::vector<std::vector<std::int32_t>> out;
  const EncodeOptions options{false, false};
  for (const std::string& word : words) {
    for (const std::string& spelling : {word, " " + word}) {
      auto ids = tokenizer.encode(spelling, options);
      if (!ids.empty() && std::find(out.begin(), out.end(), ids) == out.end()) out.push_back(std::move(ids));
    }
  }
  return out;
}

Result<PromptTokens> encode_text(const TextPrompt& prompt, std::size_t index, const GenerateRequest& request,
                                 const ServedModel& model) {
  PromptTokens out;
  if (prompt.is_ids) {
    out.ids = prompt.ids;
    out.text = replace_invalid_utf8(model.tokenizer->decode(prompt.ids, false));
  } else {
    out.ids = model.tokenizer->encode(prompt.text, {request.add_special_tokens, true});
    out.text = prompt.text;
  }
  if (out.ids.empty()) {
    return invalid(fmt::format("'prompt' number {} is empty: there is nothing to continue.", index),
                   "prompt");
  }
  return out;
}

}  // namespace

Result<PromptTokens> encode_chat(const ChatPrompt& chat, bool add_special_tokens, const ServedModel& model,
                                 const ApiOptions& options) {
  const Tokenizer& tokenizer = *model.tokenizer;
  const ChatTemplate* chat_template = model.chat_template;
  std::unique_ptr<ChatTemplate> own;
  if (!chat.template_override.empty()) {
    QUIRE_TRY(own, ChatTemplate::parse(chat.template_override));
    chat_template = own.get();
  }
  if (chat_template == nullptr) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} Use /v1/completions, or start the server with --chat-template.",
                                  model.chat_template_problem.empty() ? "This model has no chat template."
                                                                      : model.chat_template_problem),
                      "messages");
  }
  Json context = chat.context;
  if (const auto bos = tokenizer.bos_id()) context["bos_token"] = std::string(tokenizer.token_piece(*bos));
  if (const auto eos = tokenizer.eos_id()) context["eos_token"] = std::string(tokenizer.token_piece(*eos));
  if (const auto pad = tokenizer.pad_id()) context["pad_token"] = std::string(tokenizer.token_piece(*pad));
  auto rendered = chat_template->render(context);
  if (!rendered.ok()) {
    Error error = rendered.error();
    error.message = "The chat template refused this request: " + error.message;
    error.param = "messages";
    if (error.code != ErrorCode::kTooLarge) error.code = ErrorCode::kInvalid;
    return error;
  }
  std::vector<PromptPiece>& pieces = *rendered;
  if (chat.continue_final_message) QUIRE_RETURN_IF_ERROR(cut_after(pieces, chat.final_text));
  if (options.control_tokens_in_messages) {
    for (PromptPiece& piece : pieces) piece.trusted = true;
  }
  PromptTokens out;
  out.ids = tokenizer.encode_pieces(pieces, false);
  if (add_special_tokens) {
    // The template may have written the BOS token already; twice is never meant.
    const bool has_bos = !out.ids.empty() && tokenizer.bos_id() && out.ids.front() == *tokenizer.bos_id();
    if (!has_bos) out.ids = tokenizer.encode_pieces(pieces, true);
  }
  for (const PromptPiece& piece : pieces) out.text += piece.text;
  if (out.ids.empty()) {
    return invalid("The chat template made an empty prompt of these messages.", "messages");
  }
  return out;
}

Result<Submission> submit(const GenerateRequest& request, const ServedModel& model,
                          const ApiOptions& options) {
  Submission submission;
  // Who evicts is not bound by the context; positions are int32 in the engine.
  const bool evicts = request.eviction.evicts();
  const std::int64_t limit = evicts ? std::numeric_limits<std::int32_t>::max() : model.max_model_len;
  if (request.chat) {
    QUIRE_TRY(PromptTokens prompt, encode_chat(*request.chat, request.add_special_tokens, model, options));
    submission.prompts.push_back(std::move(prompt));
  } else {
    for (const TextPrompt& text : request.prompts) {
      QUIRE_TRY(PromptTokens prompt, encode_text(text, submission.prompts.size(), request, model));
      submission.prompts.push_back(std::move(prompt));
    }
  }
  const bool score_only = request.max_tokens && *request.max_tokens == 0;
  for (const PromptTokens& prompt : submission.prompts) {
    const auto length = static_cast<std::int64_t>(prompt.ids.size());
    if (length > limit || (length == limit && !score_only)) return too_long(prompt.ids.size(), limit);
  }

  SamplingParams sampling = request.sampling;
  sampling.bad_words = encode_bad_words(request.bad_words, *model.tokenizer);
  const auto num_prompts = static_cast<std::int32_t>(submission.prompts.size());
  const auto n = static_cast<std::int32_t>(request.n);
  submission.stream = std::make_shared<TokenStream>(num_prompts * n);
  submission.submitted = std::chrono::steady_clock::now();
  std::vector<TokenRequest> token_requests;
  for (std::int32_t p = 0; p < num_prompts; ++p) {
    const auto& ids = submission.prompts[static_cast<std::size_t>(p)].ids;
    const std::int64_t room = limit - static_cast<std::int64_t>(ids.size());
    const std::int64_t wanted = request.max_tokens ? *request.max_tokens
                                : request.chat     ? (evicts ? model.max_model_len : room)
                                                   : kDefaultCompletionTokens;
    for (std::int32_t i = 0; i < n; ++i) {
      TokenRequest token_request;
      token_request.id = request.id;
      token_request.prompt = ids;
      token_request.eos_ids = model.eos_ids;
      token_request.params = sampling;
      token_request.params.max_tokens = std::min(wanted, room);
      token_request.params.min_tokens = std::min(sampling.min_tokens, token_request.params.max_tokens);
      // Choices of one seeded request differ, and each equals a request of its own with seed + i.
      if (sampling.seed) token_request.params.seed = *sampling.seed + static_cast<std::uint64_t>(i);
      token_request.priority = request.priority;
      token_request.eviction = request.eviction;
      token_request.stream = submission.stream;
      token_request.choice = p * n + i;
      token_requests.push_back(std::move(token_request));
    }
  }
  sampling.max_tokens = token_requests.front().params.max_tokens;
  submission.sampling = std::move(sampling);
  QUIRE_RETURN_IF_ERROR(model.engine->submit_all(std::move(token_requests)));
  return submission;
}

}  // namespace quire
