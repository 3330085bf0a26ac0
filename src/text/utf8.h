// Purpose: read and write UTF-8 one character at a time, and repair it.
// In: bytes. Out: code points, positions. Thread: pure functions.
// Out of scope: normalization (normalizer.h), categories (unicode.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quire {

constexpr char32_t kReplacementChar = 0xfffd;

struct Utf8Char {
  char32_t code = kReplacementChar;
  std::size_t length = 1;  // bytes consumed; of malformed input the maximal subpart (Unicode 15, 3.9, D93b)
  bool valid = false;
};

// The character at text[pos]; pos < text.size().
Utf8Char decode_utf8(std::string_view text, std::size_t pos);
// code must be a scalar value; surrogates and values beyond U+10FFFF are written as U+FFFD.
void append_utf8(std::string& out, char32_t code);
bool is_valid_utf8(std::string_view text);
bool is_ascii(std::string_view text);
// Each maximal malformed subpart becomes one U+FFFD, as Python's and Rust's lossy decoders do.
std::string replace_invalid_utf8(std::string_view text);
// How many bytes at the end of text may be the beginning of a character that is not complete (0 to 3).
std::size_t partial_utf8_suffix(std::string_view text);

}  // namespace quire
