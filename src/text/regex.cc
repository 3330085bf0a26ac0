#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/core.h>
#include <pcre2.h>

#include "base/check.h"
#include "base/log.h"
#include "text/utf8.h"

namespace quire {

namespace {

// Limits of one match attempt. The patterns in use need a few steps a character; what exceeds these
// backtracks exponentially.
constexpr std::uint32_t kMatchLimit = 50'000'000;
constexpr std::uint32_t kHeapLimitKib = 64 << 10;
constexpr std::size_t kJitStackBytes = 8u << 20;

// White_Space as Oniguruma has it: PCRE2's \s also takes U+180E.
constexpr char kSpaceSet[] =
    R"(\x{09}-\x{0d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// \w as Oniguruma has it: PCRE2's has neither marks nor connectors.
constexpr char kWordSet[] = R"(\p{L}\p{M}\p{N}\p{Pc}\x{24b6}-\x{24e9})";

struct JitStack {
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);
  ~JitStack() { pcre2_jit_stack_free(stack); }
};

pcre2_jit_stack* thread_jit_stack(void*) {
  thread_local JitStack stack;
  return stack.stack;
}

struct MatchData {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  ~MatchData() { pcre2_match_data_free(data); }
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  bool jit = false;
  ~Code() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

Regex::Regex(std::string pattern, std::unique_ptr<Code> code)
    : pattern_(std::move(pattern)), code_(std::move(code)) {}
Regex::~Regex() = default;

Result<std::string> Regex::translate(std::string_view pattern) {
  std::string out;
  int class_depth = 0;
  bool class_start = false;  // right after "[" or "[^", where "]" is literal
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      if (i + 1 == pattern.size()) return invalid("the pattern ends in a backslash");
      const char e = pattern[++i];
      class_start = false;
      if (e == 's') {
        out += class_depth > 0 ? std::string(kSpaceSet) : fmt::format("[{}]", kSpaceSet);
      } else if (e == 'S' && class_depth == 0) {
        out += fmt::format("[^{}]", kSpaceSet);
      } else if (e == 'w') {
        out += class_depth > 0 ? std::string(kWordSet) : fmt::format("[{}]", kWordSet);
      } else if (e == 'W' && class_depth == 0) {
        out += fmt::format("[^{}]", kWordSet);
      } else if (e == 'h' || (e == 'H' && class_depth == 0)) {
        const char* set = "0-9a-fA-F";
        out += class_depth > 0 ? set : fmt::format("[{}{}]", e == 'H' ? "^" : "", set);
      } else if (e == 'u') {
        if (i + 4 >= pattern.size()) return invalid("\\u needs four hexadecimal digits");
        const std::string_view digits = pattern.substr(i + 1, 4);
        if (digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
          return invalid("\\u needs four hexadecimal digits");
        }
        out += fmt::format("\\x{{{}}}", digits);
        i += 4;
      } else {
        out += '\\';
        out += e;
      }
      continue;
    }
    if (class_depth > 0) {
      if (c == ']' && !class_start) {
        // A nested class is a union, so its border vanishes; only the outermost one closes.
        if (--class_depth == 0) out += ']';
        continue;
      }
      class_start = false;
      if (c == '[' && pattern.substr(i, 2) != "[:") {
        if (i + 1 < pattern.size() && pattern[i + 1] == '^') {
          return make_error(ErrorCode::kUnsupported, "a negated class inside a class is not supported");
        }
        ++class_depth;
        continue;
      }
      if (c == '[') {  // [:alpha:]
        const std::size_t end = pattern.find(":]", i);
        if (end == std::string_view::npos) {
          out += "\\[";
          continue;
        }
        out += pattern.substr(i, end + 2 - i);
        i = end + 1;
        continue;
      }
      if (c == '&' && pattern.substr(i, 2) == "&&") {
        return make_error(ErrorCode::kUnsupported, "an intersection of classes (&&) is not supported");
      }
      out += c;
      continue;
    }
    out += c;
    if (c == '[') {
      class_depth = 1;
      class_start = true;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') {
        out += '^';
        ++i;
      }
    }
  }
  return out;
}

Result<std::shared_ptr<const Regex>> Regex::compile(std::string_view pattern, const std::string& where) {
  // The longest pattern known (DeepSeek-LLM) has about 1,000 bytes.
  constexpr std::size_t kMaxPattern = 64 << 10;
  if (pattern.size() > kMaxPattern) {
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("{}: a regular expression of {} bytes; at most {} are taken", where,
                                  pattern.size(), kMaxPattern));
  }
  auto translated = translate(pattern);
  if (!translated.ok()) {
    return make_error(translated.error().code, fmt::format("{}: in the regular expression \"{}\": {}", where,
                                                           pattern, translated.error().message));
  }
  auto code = std::make_unique<Code>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_compile_context* compile_context = pcre2_compile_context_create(nullptr);
  pcre2_set_parens_nest_limit(compile_context, 100);
  code->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, compile_context);
  pcre2_compile_context_free(compile_context);
  if (code->code == nullptr) {
    unsigned char text[256];
    pcre2_get_error_message(error, text, sizeof text);
    return invalid(fmt::format("{}: the regular expression \"{}\" is wrong: {} (at byte {} of it)", where,
                               pattern, reinterpret_cast<char*>(text), offset));
  }
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  code->context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(code->context, kMatchLimit);
  pcre2_set_heap_limit(code->context, kHeapLimitKib);
  if (code->jit) pcre2_jit_stack_assign(code->context, thread_jit_stack, nullptr);
  return std::shared_ptr<const Regex>(new Regex(std::string(pattern), std::move(code)));
}

std::shared_ptr<const Regex> Regex::must_compile(std::string_view pattern) {
  auto regex = compile(pattern, "built-in pattern");
  QUIRE_CHECK(regex.ok()) << regex.error().message;
  return *regex;
}

bool Regex::find_all(std::string_view text,
                     const std::function<void(std::size_t, std::size_t)>& on_match) const {
  thread_local MatchData match;
  std::size_t pos = 0;
  while (pos <= text.size()) {
    // The text was checked once (tokenizer entry); checking it again at every match would be quadratic.
    const int rc = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), pos,
                               PCRE2_NO_UTF_CHECK, match.data, code_->context);
    if (rc == PCRE2_ERROR_NOMATCH) return true;
    if (rc < 0) {
      unsigned char message[256];
      pcre2_get_error_message(rc, message, sizeof message);
      log_warning("tokenizer: a regular expression gave up on a text of {} bytes ({}); the rest is one piece",
                  text.size(), reinterpret_cast<char*>(message));
      return false;
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.data);
    const std::size_t begin = range[0], end = range[1];
    if (end < begin) {  // \K in a look-ahead
      pos = begin + 1;
      continue;
    }
    on_match(begin, end);
    if (end > begin) {
      pos = end;
    } else {
      if (end >= text.size()) return true;
      pos = end + decode_utf8(text, end).length;
    }
  }
  return true;
}

}  // namespace quire
