#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/core.h>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace quire::jinja {
namespace {

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_data();
    add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_here(const std::string& message) const {
    fail(fmt::format("template line {}: {}", line_, message));
  }

  void add(TokenType type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }

  bool looking_at(std::string_view text, std::size_t at) const {
    return std::string_view(source_).substr(at, text.size()) == text;
  }

  // Moves to a later offset, counting lines.
  void advance_to(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  std::size_t skip_spaces(std::size_t at) const {
    while (at < source_.size()) {
      std::size_t next = at;
      if (!is_space(next_code_point(source_, next))) break;
      at = next;
    }
    return at;
  }

  // The text before a tag, less what the tag's sign and lstrip_blocks take away.
  void add_data(std::size_t begin, std::size_t end, char sign, bool is_block) {
    const std::string_view view(source_);
    if (sign == '-') {
      while (end > begin) {
        std::size_t previous = end;
        if (!is_space(previous_code_point(view, previous))) break;
        end = previous;
      }
    } else if (sign != '+' && is_block) {
      const std::size_t newline = view.substr(begin, end - begin).rfind('\n');
      const std::size_t line_start = newline == std::string_view::npos ? begin : begin + newline + 1;
      const bool starts_line = newline != std::string_view::npos || begin == 0 || view[begin - 1] == '\n';
      if (starts_line && skip_spaces(line_start) >= end) end = line_start;
    }
    if (end > begin) add(TokenType::kData, std::string(view.substr(begin, end - begin)));
  }

  // Where the text goes on behind a block or comment end that stands at `at`: past what `-` or trim_blocks
  // eat.
  std::size_t behind_block_end(std::size_t at, char sign) const {
    if (sign == '-') return skip_spaces(at);
    if (sign != '+' && at < source_.size() && source_[at] == '\n') return at + 1;
    return at;
  }

  void lex_data() {
    const std::size_t begin = at_;
    std::size_t tag = begin;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        add_data(begin, source_.size(), '+', false);
        advance_to(source_.size());
        return;
      }
      const char kind = source_[tag + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
      ++tag;
    }
    const char kind = source_[tag + 1];
    std::size_t after = tag + 2;
    char sign = 0;
    if (after < source_.size() && (source_[after] == '-' || source_[after] == '+')) sign = source_[after++];
    add_data(begin, tag, sign, kind != '{');
    advance_to(tag);
    if (kind == '#') {
      lex_comment(after);
    } else if (kind == '%' && lex_raw(after)) {
      return;
    } else {
      add(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, "");
      advance_to(after);
      lex_tag(kind == '{');
    }
  }

  void lex_comment(std::size_t from) {
    const std::size_t end = source_.find("#}", from);
    if (end == std::string::npos) fail_here("missing end of comment tag");
    const char sign =
        end > from && (source_[end - 1] == '-' || source_[end - 1] == '+') ? source_[end - 1] : 0;
    advance_to(behind_block_end(end + 2, sign));
  }

  // {% raw %}...{% endraw %}; false if the block at `from` (behind its sign) is another one.
  bool lex_raw(std::size_t from) {
    std::size_t at = skip_spaces(from);
    if (!looking_at("raw", at)) return false;
    at = skip_spaces(at + 3);
    const bool strip = looking_at("-%}", at);
    if (!strip && !looking_at("%}", at)) return false;
    at += strip ? 3 : 2;
    if (strip) at = skip_spaces(at);
    for (std::size_t end = source_.find("{%", at); end != std::string::npos;
         end = source_.find("{%", end + 1)) {
      std::size_t close = end + 2;
      char sign = 0;
      if (close < source_.size() && (source_[close] == '-' || source_[close] == '+')) sign = source_[close++];
      close = skip_spaces(close);
      if (!looking_at("endraw", close)) continue;
      close = skip_spaces(close + 6);
      char close_sign = 0;
      if (close < source_.size() && (source_[close] == '-' || source_[close] == '+'))
        close_sign = source_[close++];
      if (!looking_at("%}", close)) continue;
      add_data(at, end, sign, true);
      advance_to(behind_block_end(close + 2, close_sign));
      return true;
    }
    fail_here("missing end of raw directive");
  }

  // The inside of {{ }} or {% %}.
  void lex_tag(bool variable) {
    const std::string_view end_tag = variable ? "}}" : "%}";
    const int first_line = line_;
    std::string open;  // brackets not yet closed
    while (at_ < source_.size()) {
      if (open.empty()) {
        const char sign =
            (source_[at_] == '-' || (source_[at_] == '+' && !variable)) && looking_at(end_tag, at_ + 1)
                ? source_[at_]
                : 0;
        if (sign != 0 || looking_at(end_tag, at_)) {
          add(variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, "");
          const std::size_t after = at_ + (sign != 0 ? 3 : 2);
          if (variable) {
            advance_to(sign == '-' ? skip_spaces(after) : after);
          } else {
            advance_to(behind_block_end(after, sign));
          }
          return;
        }
      }
      const std::size_t past = skip_spaces(at_);
      if (past != at_) {
        advance_to(past);
      } else if (!lex_number() && !lex_name() && !lex_string()) {
        lex_operator(open);
      }
    }
    line_ = first_line;
    fail_here(fmt::format("the tag is never closed with '{}'", end_tag));
  }

  // Digits with single underscores between them; npos if there is none at `at`.
  std::size_t skip_digits(std::size_t at, bool (*accepts)(char)) const {
    if (at >= source_.size() || !accepts(source_[at])) return std::string::npos;
    while (at < source_.size()) {
      if (accepts(source_[at])) {
        ++at;
      } else if (source_[at] == '_' && at + 1 < source_.size() && accepts(source_[at + 1])) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  void add_number(TokenType type, std::size_t end) {
    std::string digits;
    for (std::size_t i = at_; i < end; ++i) {
      if (source_[i] != '_') digits += source_[i];
    }
    add(type, std::move(digits));
    at_ = end;
  }

  bool lex_number() {
    if (!is_ascii_digit(source_[at_])) return false;
    const std::size_t whole = skip_digits(at_, is_ascii_digit);
    std::size_t end = whole;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot) {  // x.0.1 is two subscripts
      if (whole < source_.size() && source_[whole] == '.') {
        const std::size_t fraction = skip_digits(whole + 1, is_ascii_digit);
        if (fraction != std::string::npos) end = fraction;
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        std::size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        exponent = skip_digits(exponent, is_ascii_digit);
        if (exponent != std::string::npos) end = exponent;
      }
      if (end != whole) {
        add_number(TokenType::kFloat, end);
        return true;
      }
    }
    if (source_[at_] == '0') {
      const char base = at_ + 1 < source_.size()
                            ? static_cast<char>(std::tolower(static_cast<unsigned char>(source_[at_ + 1])))
                            : ' ';
      bool (*accepts)(char) = nullptr;
      if (base == 'x') accepts = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
      if (base == 'o') accepts = [](char c) { return c >= '0' && c <= '7'; };
      if (base == 'b') accepts = [](char c) { return c == '0' || c == '1'; };
      if (accepts != nullptr) {
        std::size_t from = at_ + 2;
        if (from < source_.size() && source_[from] == '_') ++from;
        const std::size_t stop = skip_digits(from, accepts);
        if (stop != std::string::npos) {
          add_number(TokenType::kInteger, stop);
          return true;
        }
      }
      // A number other than zero has no leading zeros: 007 is 00 and then 7, an error for the parser.
      end = at_ + 1;
      while (end < source_.size() &&
             (source_[end] == '0' ||
              (source_[end] == '_' && end + 1 < source_.size() && source_[end + 1] == '0'))) {
        end += source_[end] == '0' ? 1 : 2;
      }
    }
    add_number(TokenType::kInteger, end);
    return true;
  }

  bool lex_name() {
    std::size_t at = at_;
    if (!is_identifier_start(next_code_point(source_, at))) return false;
    while (at < source_.size()) {
      std::size_t next = at;
      if (!is_identifier_part(next_code_point(source_, next))) break;
      at = next;
    }
    add(TokenType::kName, source_.substr(at_, at - at_));
    at_ = at;
    return true;
  }

  bool lex_string() {
    const char quote = source_[at_];
    if (quote != '\'' && quote != '"') return false;
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_here(fmt::format("a string that begins with {} is never closed", quote));
    add(TokenType::kString, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance_to(end + 1);
    return true;
  }

  // Python's escapes in string literals; an unknown escape keeps its backslash.
  std::string unescape(std::string_view raw) const {
    std::string out;
    out.reserve(raw.size());
    CodePoint high_surrogate = 0;
    for (std::size_t i = 0; i < raw.size();) {
      if (raw[i] != '\\') {
        out += raw[i++];
        continue;
      }
      const char c = raw[i + 1];  // lex_string() guarantees that one follows
      i += 2;
      static constexpr std::string_view kNames = "abfnrtv\\'\"";
      static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
      if (const std::size_t simple = kNames.find(c); simple != std::string_view::npos) {
        out += kMeanings[simple];
      } else if (c == '\n') {
        // a line continued
      } else if (c >= '0' && c <= '7') {
        int value = c - '0';
        for (int n = 1; n < 3 && i < raw.size() && raw[i] >= '0' && raw[i] <= '7'; ++n) {
          value = value * 8 + (raw[i++] - '0');
        }
        append_utf8(out, value);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t digits = c == 'x' ? 2 : (c == 'u' ? 4 : 8);
        std::uint32_t value = 0;
        for (std::size_t n = 0; n < digits; ++n, ++i) {
          if (i >= raw.size() || std::isxdigit(static_cast<unsigned char>(raw[i])) == 0) {
            fail_here(fmt::format("truncated \\{} escape in a string", c));
          }
          const char d = raw[i];
          value =
              value * 16 + static_cast<std::uint32_t>(is_ascii_digit(d) ? d - '0' : (d | 0x20) - 'a' + 10);
        }
        if (value > 0x10FFFF) fail_here("illegal Unicode character in a string escape");
        const auto code = static_cast<CodePoint>(value);
        if (high_surrogate != 0 && code >= 0xDC00 && code <= 0xDFFF) {
          out.resize(out.size() - 3);  // the U+FFFD that stood for the first half
          append_utf8(out, 0x10000 + ((high_surrogate - 0xD800) << 10) + (code - 0xDC00));
        } else {
          append_utf8(out, code);
        }
        high_surrogate = code >= 0xD800 && code <= 0xDBFF ? code : 0;
        continue;
      } else if (c == 'N') {
        fail_here("\\N{...} escapes are not supported in strings; use \\uXXXX");
      } else {
        out += '\\';
        out += c;
      }
      high_surrogate = 0;
    }
    return out;
  }

  void lex_operator(std::string& open) {
    static constexpr std::array<std::string_view, 26> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!looking_at(op, at_)) continue;
      if (op == "(" || op == "[" || op == "{") {
        open += op == "(" ? ')' : (op == "[" ? ']' : '}');
      } else if (op == ")" || op == "]" || op == "}") {
        if (open.empty()) fail_here(fmt::format("unexpected '{}'", op));
        if (open.back() != op[0]) fail_here(fmt::format("unexpected '{}', expected '{}'", op, open.back()));
        open.pop_back();
      }
      add(TokenType::kOperator, std::string(op));
      at_ += op.size();
      return;
    }
    std::size_t next = at_;
    next_code_point(source_, next);
    fail_here(fmt::format("unexpected character '{}'", source_.substr(at_, next - at_)));
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace quire::jinja
