// Purpose: template source -> tokens, with Jinja's whitespace rules (trim_blocks and lstrip_blocks on, the
// last newline of the source dropped, as Hugging Face renders chat templates). Out of scope: grammar
// (parser.h). Thread: pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::jinja {

enum class TokenType : std::uint8_t {
  kData,  // text between tags
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type;
  std::string text;  // decoded for strings, spelled for the rest
  int line;
};

// Throws TemplateError; its message has the line.
std::vector<Token> tokenize_template(std::string_view source);

}  // namespace quire::jinja
