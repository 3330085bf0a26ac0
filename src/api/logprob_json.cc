#include "api/logprob_json.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "text/utf8.h"

namespace quire {
namespace {

// JSON has no infinity; OpenAI writes -9999.0 for a token that cannot be.
double finite(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

Json entry(const TokenLogprob& token, const Tokenizer& tokenizer, bool tokens_as_ids) {
  const std::string bytes = tokenizer.token_bytes(token.token);
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<int>(static_cast<unsigned char>(byte)));
  Json out;
  out["token"] = tokens_as_ids ? fmt::format("token_id:{}", token.token) : replace_invalid_utf8(bytes);
  out["logprob"] = finite(token.logprob);
  out["bytes"] = std::move(list);
  return out;
}

}  // namespace

Json chat_logprobs(const std::vector<PositionLogprobs>& positions, std::int64_t num_top,
                   const Tokenizer& tokenizer, bool tokens_as_ids) {
  Json out = Json::array();
  for (const PositionLogprobs& position : positions) {
    Json one = entry(position.chosen, tokenizer, tokens_as_ids);
    Json top = Json::array();
    const auto count = std::min<std::size_t>(position.top.size(), static_cast<std::size_t>(num_top));
    for (std::size_t i = 0; i < count; ++i) {
      top.push_back(entry(position.top[i], tokenizer, tokens_as_ids));
    }
    one["top_logprobs"] = std::move(top);
    out.push_back(std::move(one));
  }
  return out;
}

Json prompt_logprobs_json(const std::vector<std::optional<PositionLogprobs>>& positions,
                          const Tokenizer& tokenizer) {
  Json out = Json::array();
  for (const auto& position : positions) {
    if (!position) {
      out.push_back(nullptr);
      continue;
    }
    Json one = Json::object();
    const auto add = [&](const TokenLogprob& token) {
      one[std::to_string(token.token)] = {
          {"logprob", finite(token.logprob)},
          {"rank", token.rank},
          {"decoded_token", replace_invalid_utf8(tokenizer.token_bytes(token.token))}};
    };
    add(position->chosen);
    for (const TokenLogprob& token : position->top) add(token);
    out.push_back(std::move(one));
  }
  return out;
}

std::string CompletionLogprobs::spell(std::int32_t token) const {
  if (tokens_as_ids_) return fmt::format("token_id:{}", token);
  const std::string bytes = tokenizer_.token_bytes(token);
  if (is_valid_utf8(bytes)) return bytes;
  std::string out = "bytes:";
  for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return out;
}

void CompletionLogprobs::add(std::int32_t token, const std::optional<PositionLogprobs>& position) {
  tokens_.push_back(spell(token));
  text_offset_.push_back(offset_);
  if (!position) {
    token_logprobs_.push_back(nullptr);
    top_logprobs_.push_back(nullptr);
  } else {
    token_logprobs_.push_back(finite(position->chosen.logprob));
    Json top = Json::object();
    for (const TokenLogprob& one : position->top) top[spell(one.token)] = finite(one.logprob);
    top[spell(token)] = finite(position->chosen.logprob);
    top_logprobs_.push_back(std::move(top));
  }
  for (const char c : tokenizer_.token_bytes(token)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80 && byte < 0xc0 && partial_left_ > 0) {
      if (--partial_left_ == 0) ++offset_;
    } else {
      partial_left_ = byte < 0xc0 ? 0 : byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
      if (partial_left_ == 0) ++offset_;
    }
  }
}

Json CompletionLogprobs::take() {
  Json out;
  out["text_offset"] = std::move(text_offset_);
  out["token_logprobs"] = std::move(token_logprobs_);
  out["tokens"] = std::move(tokens_);
  out["top_logprobs"] = std::move(top_logprobs_);
  text_offset_ = token_logprobs_ = tokens_ = top_logprobs_ = Json::array();
  return out;
}

}  // namespace quire
