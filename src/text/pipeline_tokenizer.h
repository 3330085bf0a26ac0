// Purpose: the one Tokenizer: added tokens, normalizer, pre-tokenizer, model, ends, decoder, put together
// from what a file says. In: the parts. Out: text/tokenizer.h. Thread: immutable after construction. Out of
// scope: reading files (tokenizer_json.cc, tokenizer_gguf.cc).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"
#include "text/token_model.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace quire {

struct PipelineParts {
  std::shared_ptr<const Vocabulary> vocabulary;
  NormalizerPtr normalizer;       // may be null
  PreTokenStepPtr pre_tokenizer;  // may be null
  std::unique_ptr<TokenModel> model;
  TokenDecoder decoder;
  std::vector<AddedToken> added_tokens;
  std::vector<TokenId> prefix, suffix;  // what add_special_tokens adds
  std::optional<TokenId> bos, eos, pad;
  std::vector<TokenId> end_ids;  // besides eos
  std::string description;       // what the model's name and vocabulary size do not say
};

class PipelineTokenizer : public Tokenizer {
 public:
  explicit PipelineTokenizer(PipelineParts parts);

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::vector<TokenId> encode_pieces(const std::vector<PromptPiece>& pieces,
                                     bool add_special_tokens) const override;
  std::string token_bytes(TokenId id) const override;
  std::string token_bytes_at_start(TokenId id) const override;
  std::string_view token_piece(TokenId id) const override;
  bool is_special(TokenId id) const override;
  std::string decode(const std::vector<TokenId>& ids, bool skip_special) const override;
  bool strips_leading_space() const override { return parts_.decoder.strips_leading_space(); }
  std::optional<TokenId> token_to_id(std::string_view piece) const override;
  std::int32_t vocab_size() const override { return parts_.vocabulary->size(); }
  std::optional<TokenId> bos_id() const override { return parts_.bos; }
  std::optional<TokenId> eos_id() const override { return parts_.eos; }
  std::optional<TokenId> pad_id() const override { return parts_.pad; }
  bool adds_bos() const override;
  std::vector<TokenId> end_ids() const override { return parts_.end_ids; }
  std::string description() const override;

 private:
  // trusted: nullptr if control tokens count everywhere.
  void encode_text(std::string_view text, const TrustedRanges* trusted, std::vector<TokenId>& out) const;
  void encode_segment(std::string_view segment, bool at_start, bool control_tokens,
                      std::vector<TokenId>& out) const;
  void encode_words(std::string_view text, bool at_start, std::vector<TokenId>& out) const;
  std::string bytes_of(TokenId id, bool at_start) const;

  PipelineParts parts_;
  std::vector<bool> literal_;           // by id: decoded as it is spelled
  AddedTokenMatcher raw_;               // matched before the normalizer
  AddedTokenMatcher raw_with_control_;  // the same and every control token: for text of mixed trust
  AddedTokenMatcher normalized_;        // matched after it
};

}  // namespace quire
