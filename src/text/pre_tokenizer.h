// Purpose: cut a normalized text into the words that the model encodes one by one.
// In: valid UTF-8. Out: the text (some steps change it) and its spans. Thread: immutable after loading.
// Out of scope: reading tokenizer.json (tokenizer_json_parts.cc), the patterns by hand (splitter.h).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "text/regex.h"
#include "text/splitter.h"

namespace quire {

struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct PreTokens {
  std::string text;
  std::vector<Span> spans;    // in order, none empty
  bool at_text_start = true;  // the first span begins the whole input
};

class PreTokenStep {
 public:
  virtual ~PreTokenStep() = default;
  virtual void apply(PreTokens& tokens) const = 0;
};
using PreTokenStepPtr = std::shared_ptr<const PreTokenStep>;

// What becomes of the matches of a pattern (tokenizers' SplitDelimiterBehavior).
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

PreTokenStepPtr make_sequence_step(std::vector<PreTokenStepPtr> parts);
PreTokenStepPtr make_regex_split(std::shared_ptr<const Regex> pattern, SplitBehavior behavior, bool invert);
PreTokenStepPtr make_literal_split(std::string pattern, SplitBehavior behavior, bool invert);
// The hand-written splitters; what they match covers the text, so the behaviour is "isolated".
PreTokenStepPtr make_known_split(SplitKind kind);
PreTokenStepPtr make_digits_split(bool individual);
PreTokenStepPtr make_punctuation_split(SplitBehavior behavior);
PreTokenStepPtr make_whitespace_split();  // at White_Space, which is dropped
PreTokenStepPtr make_word_split();        // "Whitespace": \w+|[^\w\s]+
PreTokenStepPtr make_bert_split();
// DeepSeek-LLM's "\s+$": a run of white space at the end of a span stands alone. As a regular expression it
// is quadratic in a run elsewhere.
PreTokenStepPtr make_trailing_space_split();
// A space in front of a text that does not begin with one.
PreTokenStepPtr make_prefix_space_step();
// Bytes as characters of the byte alphabet, for models that are not byte-level BPE.
PreTokenStepPtr make_byte_chars_step();

enum class PrependScheme { kAlways, kFirst, kNever };
PreTokenStepPtr make_metaspace_step(std::string replacement, PrependScheme scheme, bool split);

}  // namespace quire
