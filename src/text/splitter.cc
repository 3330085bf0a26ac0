#include "text/splitter.h"

#include <array>

#include "base/check.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace quire {

namespace {

struct KnownPattern {
  SplitKind kind;
  std::string_view pattern;
};

// As the tokenizer.json files spell them; the first of each kind is its name in split_pattern().
constexpr std::array<KnownPattern, 8> kPatterns = {{
    {SplitKind::kGpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitKind::kGpt2, R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitKind::kLlama3,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitKind::kLlama3,
     R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitKind::kQwen2,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitKind::kQwen2,
     R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitKind::kQwen35,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitKind::kQwen35,
     R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
}};

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text), classes_(char_classes()) {}

  // Code point, class and length of the character at pos; class 0 and length 0 at the end.
  struct Char {
    char32_t code = 0;
    std::uint16_t classes = 0;
    std::size_t length = 0;
  };
  Char at(std::size_t pos) const {
    if (pos >= text_.size()) return {};
    const unsigned char byte = static_cast<unsigned char>(text_[pos]);
    if (byte < 0x80) return {byte, classes_[byte], 1};
    const Utf8Char c = decode_utf8(text_, pos);
    return {c.code, classes_[c.code], c.length};
  }
  // Past the run of characters that have one of the bits.
  std::size_t skip(std::size_t pos, std::uint16_t bits) const {
    for (Char c = at(pos); c.length != 0 && (c.classes & bits); c = at(pos)) pos += c.length;
    return pos;
  }
  std::size_t skip_without(std::size_t pos, std::uint16_t bits) const {
    for (Char c = at(pos); c.length != 0 && !(c.classes & bits); c = at(pos)) pos += c.length;
    return pos;
  }
  std::size_t skip_newlines(std::size_t pos) const {
    while (pos < text_.size() && (text_[pos] == '\r' || text_[pos] == '\n')) ++pos;
    return pos;
  }
  std::string_view text() const { return text_; }

 private:
  std::string_view text_;
  const std::uint16_t* classes_;
};

// Length of a contraction at pos (which holds an apostrophe), or 0.
std::size_t contraction(std::string_view text, std::size_t pos, bool any_case) {
  const auto letter = [&](std::size_t i) -> char32_t {
    if (i >= text.size()) return 0;
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (any_case && c >= 'A' && c <= 'Z') return c + 32u;
    // Case folding makes U+017F (long s) an s.
    if (any_case && text.substr(i, 2) == "\xc5\xbf") return U's';
    return c;
  };
  switch (letter(pos + 1)) {
    case U's':
      return static_cast<unsigned char>(text[pos + 1]) == 0xc5 ? 3 : 2;
    case U't':
    case U'm':
    case U'd':
      return 2;
    case U'r':
    case U'v':
      return letter(pos + 2) == U'e' ? 3 : 0;
    case U'l':
      return letter(pos + 2) == U'l' ? 3 : 0;
    default:
      return 0;
  }
}

// \s+(?!\S)|\s+ from pos, which holds a white space: all of it at the end of the text, else all but the last.
std::size_t space_run(const Cursor& cursor, std::size_t pos) {
  const std::string_view text = cursor.text();
  std::size_t last = pos;
  std::size_t end = pos;
  for (Cursor::Char c = cursor.at(end); c.length != 0 && (c.classes & kSpace); c = cursor.at(end)) {
    last = end;
    end += c.length;
  }
  if (end == text.size() || last == pos) return end;
  return last;
}

std::size_t gpt2_word(const Cursor& cursor, std::size_t pos) {
  const std::string_view text = cursor.text();
  const Cursor::Char first = cursor.at(pos);
  if (first.code == '\'') {
    if (const std::size_t length = contraction(text, pos, false)) return pos + length;
  }
  const std::size_t start = first.code == ' ' ? pos + 1 : pos;
  const Cursor::Char c = first.code == ' ' ? cursor.at(start) : first;
  if (c.length != 0) {
    if (c.classes & kLetter) return cursor.skip(start, kLetter);
    if (c.classes & kNumber) return cursor.skip(start, kNumber);
    if (!(c.classes & kSpace)) return cursor.skip_without(start, kSpace | kLetter | kNumber);
  }
  return space_run(cursor, pos);
}

std::size_t llama3_word(const Cursor& cursor, std::size_t pos, int max_digits, std::uint16_t letters) {
  const std::string_view text = cursor.text();
  const Cursor::Char first = cursor.at(pos);
  if (first.code == '\'') {
    if (const std::size_t length = contraction(text, pos, true)) return pos + length;
  }
  // [^\r\n\p{L}\p{N}]?[letters]+ : the optional character is taken first, and given back if no letter
  // follows.
  const bool newline = first.code == '\r' || first.code == '\n';
  if (!newline && !(first.classes & (kLetter | kNumber))) {
    const std::size_t end = cursor.skip(pos + first.length, letters);
    if (end > pos + first.length) return end;
  }
  if (first.classes & letters) return cursor.skip(pos, letters);
  if (first.classes & kNumber) {
    std::size_t end = pos;
    for (int i = 0; i < max_digits; ++i) {
      const Cursor::Char c = cursor.at(end);
      if (!(c.classes & kNumber)) break;
      end += c.length;
    }
    return end;
  }
  const std::uint16_t not_symbols = kSpace | kNumber | letters;
  const std::size_t start = first.code == ' ' ? pos + 1 : pos;
  const Cursor::Char c = first.code == ' ' ? cursor.at(start) : first;
  if (c.length != 0 && !(c.classes & not_symbols)) {
    return cursor.skip_newlines(cursor.skip_without(start, not_symbols));
  }
  // \s*[\r\n]+ : up to the last line break of the run of white space.
  std::size_t after_newline = 0;
  std::size_t end = pos;
  for (Cursor::Char s = cursor.at(end); s.length != 0 && (s.classes & kSpace); s = cursor.at(end)) {
    end += s.length;
    if (s.code == '\r' || s.code == '\n') after_newline = end;
  }
  if (after_newline != 0) return after_newline;
  return space_run(cursor, pos);
}

}  // namespace

std::optional<SplitKind> known_split(std::string_view pattern) {
  for (const KnownPattern& known : kPatterns) {
    if (known.pattern == pattern) return known.kind;
  }
  return std::nullopt;
}

std::string_view split_pattern(SplitKind kind) {
  for (const KnownPattern& known : kPatterns) {
    if (known.kind == kind) return known.pattern;
  }
  QUIRE_CHECK(false) << "no pattern for kind " << static_cast<int>(kind);
  return {};
}

void split_words(SplitKind kind, std::string_view text, std::vector<std::size_t>& ends) {
  const Cursor cursor(text);
  for (std::size_t pos = 0; pos < text.size();) {
    switch (kind) {
      case SplitKind::kGpt2:
        pos = gpt2_word(cursor, pos);
        break;
      case SplitKind::kLlama3:
        pos = llama3_word(cursor, pos, 3, kLetter);
        break;
      case SplitKind::kQwen2:
        pos = llama3_word(cursor, pos, 1, kLetter);
        break;
      case SplitKind::kQwen35:
        pos = llama3_word(cursor, pos, 1, kLetter | kMark);
        break;
    }
    ends.push_back(pos);
  }
}

}  // namespace quire
