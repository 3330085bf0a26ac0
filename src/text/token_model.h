// Purpose: what turns one pre-token ("word") into ids; one implementation per kind of vocabulary.
// In: a word (UTF-8, or raw bytes for byte-level models). Out: ids appended. Thread: immutable after loading.
// Out of scope: everything before (normalizer.h, pre_tokenizer.h) and after (post-processing).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace quire {

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual void encode_word(std::string_view word, std::vector<TokenId>& out) const = 0;
  virtual std::string name() const = 0;
};

}  // namespace quire
