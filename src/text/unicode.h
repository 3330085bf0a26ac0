// Purpose: character classes as the tokenizers' regular expressions and Rust's char methods see them.
// In: code points. Out: class bits. Thread: the table is built once, on first use, and read by any thread.
// Out of scope: normalization forms (normalizer.h).
#pragma once

#include <cstdint>

namespace quire {

enum CharClass : std::uint16_t {
  kLetter = 1,        // \p{L}
  kMark = 2,          // \p{M}
  kNumber = 4,        // \p{N}
  kPunctuation = 8,   // \p{P}
  kSymbol = 16,       // \p{S}
  kSpace = 32,        // White_Space (what \s means to Oniguruma and to Rust; PCRE2's adds U+180E)
  kOther = 64,        // \p{Cc} \p{Cf} \p{Cs} \p{Co}, not what is unassigned
  kNonspacing = 128,  // \p{Mn}
  kUpperLike = 256,   // \p{Lu} \p{Lt} \p{Lm} \p{Lo} \p{M}
  kLowerLike = 512,   // \p{Ll} \p{Lm} \p{Lo} \p{M}
  kDecimal = 1024,    // \p{Nd}
};

// Pointer to 0x110000 entries.
const std::uint16_t* char_classes();

inline std::uint16_t char_class(char32_t code) {
  return code < 0x110000 ? char_classes()[code] : 0;
}
inline bool is_white_space(char32_t code) {
  return (char_class(code) & kSpace) != 0;
}
// \w as Rust's regex crate has it: alphabetic, marks, decimal digits, connectors, joiners.
bool is_word_char(char32_t code);
// ASCII punctuation and symbols, and \p{P}.
bool is_punctuation(char32_t code);
// The blocks that BERT sets apart with spaces (CJK unified ideographs and their extensions A to E, and the
// compatibility ideographs).
bool is_cjk_ideograph(char32_t code);

}  // namespace quire
