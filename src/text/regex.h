// Purpose: the regular expressions of tokenizer files (Oniguruma's syntax, as Hugging Face uses it) on PCRE2.
// In: a pattern; valid UTF-8. Out: match positions. Thread: immutable after compile(); any number of threads.
// Out of scope: hand-written splitters for the common patterns (splitter.h).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire {

class Regex {
 public:
  // `where` names the file and field in the error.
  static Result<std::shared_ptr<const Regex>> compile(std::string_view pattern, const std::string& where);
  // Pattern known to be right.
  static std::shared_ptr<const Regex> must_compile(std::string_view pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // Calls on_match(begin, end) for each match from left to right, empty ones included. False if the matcher
  // gave up at its limits somewhere: the text from there on has no match then, and a warning was logged.
  bool find_all(std::string_view text, const std::function<void(std::size_t, std::size_t)>& on_match) const;
  const std::string& pattern() const { return pattern_; }

  // Oniguruma's syntax in PCRE2's: \h, \uHHHH, \s, \w, and classes within classes. Exposed for its test.
  static Result<std::string> translate(std::string_view pattern);

 private:
  struct Code;
  Regex(std::string pattern, std::unique_ptr<Code> code);
  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace quire
