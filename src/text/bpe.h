// Purpose: byte-pair encoding: merge the best pair of neighbours until none is left, in n log n.
// In: a vocabulary, merges in order of priority (or scores, as SentencePiece has them). Out: a TokenModel.
// Thread: immutable after loading. Out of scope: the split into words before it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/token_model.h"
#include "text/vocabulary.h"

namespace quire {

struct BpeOptions {
  // Words are raw bytes; a byte's symbol is its character of the byte alphabet (vocabulary.h).
  bool byte_level = false;
  bool ignore_merges = false;  // a word that is a piece as it stands is that piece
  bool byte_fallback = false;  // a character that is no piece becomes <0xHH> pieces
  bool fuse_unk = false;       // a run of unknown characters is one unknown token
  std::optional<TokenId> unk;
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  // A merge whose parts or result are no pieces: an error, or (GGUF) an inner symbol that is written out as
  // bytes if it is still there at the end.
  bool strict_merges = true;
};

class BpeModel : public TokenModel {
 public:
  using Merge = std::pair<std::string_view, std::string_view>;

  // Priority is the order of `merges`.
  static Result<std::unique_ptr<BpeModel>> from_merges(std::shared_ptr<const Vocabulary> vocabulary,
                                                       const std::vector<Merge>& merges, BpeOptions options,
                                                       const std::string& where);
  // SentencePiece: two neighbours merge if together they are a piece; the higher score goes first.
  static std::unique_ptr<BpeModel> from_scores(std::shared_ptr<const Vocabulary> vocabulary,
                                               BpeOptions options);

  void encode_word(std::string_view word, std::vector<TokenId>& out) const override;
  std::string name() const override;

 private:
  using Symbol = std::uint32_t;  // a token id, or vocabulary size + index into inner_
  static constexpr Symbol kNoSymbol = 0xffffffffu;
  static constexpr std::uint32_t kNoRank = 0xffffffffu;

  struct MergeSlot {
    std::uint64_t pair = ~0ull;  // left << 32 | right
    std::uint32_t rank = kNoRank;
    Symbol result = kNoSymbol;
  };
  struct Scratch;

  BpeModel(std::shared_ptr<const Vocabulary> vocabulary, BpeOptions options);
  void reserve_merges(std::size_t count);
  void add_merge(Symbol left, Symbol right, std::uint32_t rank, Symbol result);
  const MergeSlot* find_merge(Symbol left, Symbol right) const;
  std::optional<Symbol> find_symbol(std::string_view piece) const;
  Symbol intern(std::string_view piece);
  void fill_base_symbols();
  // Fills scratch.symbols; a character without a symbol ends a run (kNoSymbol entry that never merges).
  void split_into_symbols(std::string_view word, Scratch& scratch) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  void emit(const Scratch& scratch, std::string_view word, std::vector<TokenId>& out) const;
  void emit_unknown(std::string_view text, bool& after_unk, std::vector<TokenId>& out) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  BpeOptions options_;
  OrdinaryPieces mergeable_;
  StringList inner_;  // symbols that are no pieces
  PieceIndex inner_index_;
  std::vector<MergeSlot> merges_;
  std::size_t num_merges_ = 0;
  std::array<Symbol, 256> byte_symbols_{};             // byte-level: by byte; else ASCII characters
  std::unordered_map<char32_t, Symbol> char_symbols_;  // other characters
  std::array<TokenId, 256> byte_tokens_{};             // <0xHH>, or -1
};

}  // namespace quire
