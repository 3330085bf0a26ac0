// Purpose: WordPiece (BERT): the longest piece that fits, again and again; and WordLevel: a word is one
// token. In: a vocabulary. Out: a TokenModel. Thread: immutable after loading.
#pragma once

#include <memory>
#include <string>

#include "text/token_model.h"
#include "text/vocabulary.h"

namespace quire {

struct WordPieceOptions {
  std::optional<TokenId> unk;
  std::string word_start;                // before the first piece of a word: "▁" in GGUF files
  std::string continuing_prefix = "##";  // before the others: "" in GGUF files
  std::size_t max_input_chars_per_word = 100;
};

class WordPieceModel : public TokenModel {
 public:
  WordPieceModel(std::shared_ptr<const Vocabulary> vocabulary, WordPieceOptions options);
  void encode_word(std::string_view word, std::vector<TokenId>& out) const override;
  std::string name() const override { return "WordPiece"; }

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  WordPieceOptions options_;
  std::size_t longest_piece_ = 0;  // in bytes
  OrdinaryPieces pieces_;
};

class WordLevelModel : public TokenModel {
 public:
  WordLevelModel(std::shared_ptr<const Vocabulary> vocabulary, std::optional<TokenId> unk);
  void encode_word(std::string_view word, std::vector<TokenId>& out) const override;
  std::string name() const override { return "WordLevel"; }

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::optional<TokenId> unk_;
  OrdinaryPieces pieces_;
};

}  // namespace quire
