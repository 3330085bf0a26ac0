// Purpose: log-probabilities as the OpenAI protocol writes them. In: PositionLogprobs. Out: JSON. Thread:
// any; CompletionLogprobs belongs to one connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/json.h"
#include "engine/token_stream.h"
#include "text/tokenizer.h"

namespace quire {

// Chat: [{token, logprob, bytes, top_logprobs: [...]}]. A token that is part of a character has U+FFFD in
// "token"; "bytes" is exact.
Json chat_logprobs(const std::vector<PositionLogprobs>& positions, std::int64_t num_top,
                   const Tokenizer& tokenizer, bool tokens_as_ids);

// vLLM's prompt_logprobs: [null, {"ID": {logprob, rank, decoded_token}, ...}, ...].
Json prompt_logprobs_json(const std::vector<std::optional<PositionLogprobs>>& positions,
                          const Tokenizer& tokenizer);

// Plain completions: the four parallel arrays. Offsets count characters from the beginning of the answer's
// text; a token inside a character has that character's offset. Tokens that are no whole characters are
// spelled "bytes:\xf0\x9f", as OpenAI does, so that equal-looking ones stay distinct.
class CompletionLogprobs {
 public:
  CompletionLogprobs(const Tokenizer& tokenizer, bool tokens_as_ids)
      : tokenizer_(tokenizer), tokens_as_ids_(tokens_as_ids) {}
  void add(std::int32_t token, const std::optional<PositionLogprobs>& position);
  // The arrays since the last call; offsets go on.
  Json take();

 private:
  std::string spell(std::int32_t token) const;

  const Tokenizer& tokenizer_;
  const bool tokens_as_ids_;
  std::int64_t offset_ = 0;        // whole characters so far
  std::int64_t partial_left_ = 0;  // bytes that the open character still needs
  Json text_offset_ = Json::array();
  Json token_logprobs_ = Json::array();
  Json tokens_ = Json::array();
  Json top_logprobs_ = Json::array();
};

}  // namespace quire
