// Purpose: find the tokens that are matched in the text as they stand, before the model sees it.
// In: text, which tokens count. Out: matches from left to right. Thread: immutable after loading.
//
// Policy (docs/flow.md): control tokens ("special": true, GGUF type 3) are matched only where the caller
// allows it. Other added tokens ("special": false, GGUF type 4: <tool_call>, <think>, runs of spaces) are
// ordinary vocabulary and matched everywhere, as the models were trained; a user can spell them, which forges
// no turn. Turn markers that a file declares as ordinary are treated as control tokens (is_turn_marker).
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace quire {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;  // never inside a word
  bool lstrip = false;       // swallows white space on its left
  bool rstrip = false;
  bool normalized = false;  // matched in the normalized text, in its own normalized form
};

// Spellings that delimit turns in the chat formats in use; whoever can write them can forge a turn.
bool is_turn_marker(std::string_view content);
// Those of them that end the model's turn.
bool is_end_of_turn(std::string_view content);

// Byte ranges [first, second) of the text in which control tokens are recognised, ascending, not touching.
using TrustedRanges = std::vector<std::pair<std::size_t, std::size_t>>;

class AddedTokenMatcher {
 public:
  // The spelling to look for (content, or its normalized form).
  void add(const AddedToken& token, std::string_view spelling);
  bool empty() const { return tokens_.empty(); }

  struct Match {
    std::size_t begin, end;  // with the white space that lstrip and rstrip swallow
    TokenId id;
  };
  // trusted: nullptr if control tokens count everywhere.
  std::vector<Match> find(std::string_view text, const TrustedRanges* trusted) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::uint32_t>> children;
    std::int32_t token = -1;  // index into tokens_
  };
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;  // 0 if there is none
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> starts_{};
  std::vector<AddedToken> tokens_;
};

}  // namespace quire
