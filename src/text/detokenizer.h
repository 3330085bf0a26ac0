// Purpose: the running text of one output, in whole UTF-8 characters only.
// In: token ids, one at a time. Out: text that can be sent now. Thread: owned by one connection.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace quire {

class Detokenizer {
 public:
  // The tokenizer must outlive this. at_start: this output begins a text, so a SentencePiece leading space is
  // dropped.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special, bool at_start);
  // The text that token completes; "" while a character is still partial. Bytes that can never become valid
  // UTF-8 give U+FFFD as soon as that is certain.
  std::string push(TokenId token);
  // A partial character at the end is left out (policy in docs/flow.md); returns "" and clears it.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  bool at_start_;
  std::string pending_;
};

}  // namespace quire
