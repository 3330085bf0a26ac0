#include "text/detokenizer.h"

#include "text/utf8.h"

namespace quire {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special, bool at_start)
    : tokenizer_(tokenizer), skip_special_(skip_special), at_start_(at_start) {}

std::string Detokenizer::push(TokenId token) {
  if (token < 0 || token >= tokenizer_.vocab_size()) return {};  // padding rows of a model's embedding
  if (skip_special_ && tokenizer_.is_special(token)) return {};
  pending_ += at_start_ ? tokenizer_.token_bytes_at_start(token) : tokenizer_.token_bytes(token);
  at_start_ = false;
  const std::size_t whole = pending_.size() - partial_utf8_suffix(pending_);
  const std::string_view ready = std::string_view(pending_).substr(0, whole);
  std::string text = is_valid_utf8(ready) ? std::string(ready) : replace_invalid_utf8(ready);
  pending_.erase(0, whole);
  return text;
}

std::string Detokenizer::finish() {
  pending_.clear();
  return {};
}

}  // namespace quire
