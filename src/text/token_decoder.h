// Purpose: what each token adds to a text.
// In: the decoder steps of a tokenizer file. Out: bytes of a token, inside a text and at its beginning.
// Thread: immutable after loading. Out of scope: whole characters (detokenizer.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace quire {

struct DecoderStep {
  enum class Kind {
    kByteLevel,     // characters of the byte alphabet are bytes
    kByteFallback,  // <0xHH> is a byte
    kReplace,       // `from` (or the pattern) becomes `to`
    kMetaspace,     // `from` is a space; at the beginning of a text, if strip, the first `count` go
    kStrip,         // up to `count` times `from` is dropped at the beginning of a text (strip: of each token)
    kWordPiece,     // a token without the prefix `from` gets a space before it, except at the beginning
    kBpeSuffix,     // the suffix `from` is a space
    kCleanUp,       // no space before punctuation and contractions (Hugging Face's clean-up)
  };
  Kind kind = Kind::kReplace;
  std::string from = {}, to = {};
  std::shared_ptr<const Regex> pattern = nullptr;
  int count = 0;
  bool strip = false;
};

class TokenDecoder {
 public:
  explicit TokenDecoder(std::vector<DecoderStep> steps = {}) : steps_(std::move(steps)) {}
  // literal: an added token, whose spelling is its text (TOK-10: it by-passes the byte alphabet).
  std::string bytes(std::string_view piece, bool literal, bool at_start) const;
  bool strips_leading_space() const;

 private:
  std::vector<DecoderStep> steps_;
};

}  // namespace quire
