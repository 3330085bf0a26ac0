// Purpose: text <-> token ids, as the model's own tokenizer does it.
// In: tokenizer.json (Hugging Face) or GGUF tokenizer keys. Out: ids, and the bytes each id stands for.
// Thread: immutable after loading; any number of threads may call it.
// Out of scope: chat templates (chat_template.h), whole-character streaming (detokenizer.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/metadata.h"
#include "base/result.h"

namespace quire {

using TokenId = std::int32_t;

struct EncodeOptions {
  // Add what the tokenizer's post-processor or add_bos/add_eos keys add at the ends.
  bool add_special_tokens = true;
  // Control tokens spelled in the text become those tokens. False: such text is literal (a user's chat
  // message).
  bool parse_special = true;
};

// A piece of a rendered chat prompt: text that came from the template (its control tokens are special) or
// from a message (its control tokens are literal text), see chat_template.h.
struct PromptPiece {
  std::string text;
  bool trusted = true;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // text must be UTF-8; malformed bytes are encoded as U+FFFD would be (api/ refuses them before this).
  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const = 0;

  // Encodes the concatenation of the pieces as one text (normalizer, pre-tokenizer and merges run across
  // piece borders), where control tokens are recognised only if they lie wholly inside trusted pieces.
  // add_special_tokens: as encode(), but what goes before the text is not added if the text begins with it (a
  // template that writes BOS itself).
  virtual std::vector<TokenId> encode_pieces(const std::vector<PromptPiece>& pieces,
                                             bool add_special_tokens) const = 0;

  // The bytes of one token as they stand inside a running text (may be part of a character). Control tokens
  // give their spelling. Ids outside the vocabulary give "".
  virtual std::string token_bytes(TokenId id) const = 0;
  // The same for the first token of a text (see strips_leading_space).
  virtual std::string token_bytes_at_start(TokenId id) const { return token_bytes(id); }
  // The raw vocabulary entry (e.g. "Ġhello"), for inspection.
  virtual std::string_view token_piece(TokenId id) const = 0;
  virtual bool is_special(TokenId id) const = 0;

  // Whole text of a token sequence, with the decoder's rules at its beginning (e.g. the first leading space
  // of a SentencePiece text is dropped). skip_special leaves control tokens out. May end in a partial
  // character.
  virtual std::string decode(const std::vector<TokenId>& ids, bool skip_special) const = 0;
  // True if decode() of a sequence drops the leading space of its first token (SentencePiece habits).
  virtual bool strips_leading_space() const = 0;

  virtual std::optional<TokenId> token_to_id(std::string_view piece) const = 0;
  virtual std::int32_t vocab_size() const = 0;  // ids are [0, vocab_size)
  virtual std::optional<TokenId> bos_id() const = 0;
  virtual std::optional<TokenId> eos_id() const = 0;
  virtual std::optional<TokenId> pad_id() const = 0;
  virtual bool adds_bos() const = 0;
  // Every id that ends a turn as the tokenizer's own files say (eos, eot, eom).
  virtual std::vector<TokenId> end_ids() const = 0;
  // e.g. "byte-level BPE, 151936 tokens, pre-tokenizer qwen2, NFC": for the start-up report.
  virtual std::string description() const = 0;
};

// tokenizer_json: the text of tokenizer.json; tokenizer_config_json may be empty.
// `where` names the file in errors.
Result<std::unique_ptr<Tokenizer>> load_tokenizer_json(std::string_view tokenizer_json,
                                                       std::string_view tokenizer_config_json,
                                                       const std::string& where);
// From tokenizer.ggml.* keys (docs: GGUF specification); a vocabulary-only file is enough.
Result<std::unique_ptr<Tokenizer>> load_tokenizer_gguf(const Metadata& metadata, const std::string& where);

}  // namespace quire
