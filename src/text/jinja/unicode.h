// Purpose: Python's view of characters (code points) over UTF-8 bytes: counting, classes, case mappings.
// In: valid UTF-8 (text/utf8.h checks it, sanitize_utf8() makes it so). Thread: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::jinja {

using CodePoint = std::int32_t;

// Replaces every malformed byte by U+FFFD.
std::string sanitize_utf8(std::string_view bytes);
void append_utf8(std::string& out, CodePoint c);  // surrogates and out-of-range values become U+FFFD
// Decodes the character at offset and moves offset behind it.
CodePoint next_code_point(std::string_view bytes, std::size_t& offset);
// Decodes the character that ends at offset and moves offset to its start.
CodePoint previous_code_point(std::string_view bytes, std::size_t& offset);
std::size_t count_code_points(std::string_view bytes);
// Byte offset of the index-th character (index <= count).
std::size_t code_point_offset(std::string_view bytes, std::size_t index);

// As str.isspace(), .isalpha(), ... of Python say for one character.
bool is_space(CodePoint c);
bool is_alpha(CodePoint c);
bool is_decimal(CodePoint c);
bool is_digit(CodePoint c);
bool is_numeric(CodePoint c);
bool is_upper(CodePoint c);
bool is_lower(CodePoint c);
bool is_title(CodePoint c);
bool is_printable(CodePoint c);
bool is_line_break(CodePoint c);  // where str.splitlines() splits
bool is_identifier_start(CodePoint c);
bool is_identifier_part(CodePoint c);

// Full case mappings (one character may become several), without the final-sigma rule.
void append_upper(std::string& out, CodePoint c);
void append_lower(std::string& out, CodePoint c);
void append_title(std::string& out, CodePoint c);
void append_casefold(std::string& out, CodePoint c);

}  // namespace quire::jinja
