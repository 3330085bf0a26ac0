// Purpose: the text transformations that tokenizers do before splitting: Unicode forms, lower case,
// stripping, replacing. In: valid UTF-8. Out: valid UTF-8. Thread: immutable after loading. Out of scope:
// reading tokenizer.json (tokenizer_json_parts.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/regex.h"

namespace quire {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string apply(std::string text) const = 0;
};
using NormalizerPtr = std::shared_ptr<const Normalizer>;

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// Linear but for the stable sort of runs of combining marks.
std::string to_unicode_form(UnicodeForm form, std::string text);

NormalizerPtr make_unicode_normalizer(UnicodeForm form);
NormalizerPtr make_sequence_normalizer(std::vector<NormalizerPtr> parts);
NormalizerPtr make_lowercase_normalizer();
NormalizerPtr make_strip_normalizer(bool left, bool right);
NormalizerPtr make_strip_accents_normalizer();  // drops \p{M}
NormalizerPtr make_prepend_normalizer(std::string prefix);
NormalizerPtr make_replace_normalizer(std::string from, std::string to);
NormalizerPtr make_regex_replace_normalizer(std::shared_ptr<const Regex> pattern, std::string to);
NormalizerPtr make_nmt_normalizer();
NormalizerPtr make_byte_level_normalizer();

struct BertNormalizerOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool lowercase = true;
  std::optional<bool> strip_accents;  // default: as lowercase
};
NormalizerPtr make_bert_normalizer(const BertNormalizerOptions& options);

// SentencePiece's compiled character map: u32 size of a double-array trie, the trie, then NUL-ended
// replacements (sentencepiece, builder.cc). The longest key at each position is replaced.
Result<NormalizerPtr> make_charsmap_normalizer(std::string_view charsmap, const std::string& where);
// SentencePiece's remove_extra_whitespaces: none at the ends, single ones within.
NormalizerPtr make_collapse_spaces_normalizer();

}  // namespace quire
