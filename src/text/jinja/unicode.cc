#include "text/jinja/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>

#include <utf8proc.h>

namespace quire::jinja {
namespace {

constexpr CodePoint kReplacement = 0xFFFD;

// The unconditional multi-character upper-case mappings of Unicode's SpecialCasing.txt that occur in running
// text; everything else maps one to one.
struct SpecialCase {
  CodePoint from;
  const char* upper;
  const char* title;
};
constexpr SpecialCase kSpecialCases[] = {
    {0x00DF, "SS", "Ss"},           {0x0149, "\u02BCN", "\u02BCN"},
    {0x01F0, "J\u030C", "J\u030C"}, {0x0587, "\u0535\u0552", "\u0535\u0582"},
    {0x1E96, "H\u0331", "H\u0331"}, {0x1E97, "T\u0308", "T\u0308"},
    {0x1E98, "W\u030A", "W\u030A"}, {0x1E99, "Y\u030A", "Y\u030A"},
    {0x1E9A, "A\u02BE", "A\u02BE"}, {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},           {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},         {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},           {0xFB06, "ST", "St"},
};

const SpecialCase* find_special(CodePoint c) {
  if (c < 0xDF) return nullptr;
  for (const SpecialCase& special : kSpecialCases) {
    if (special.from == c) return &special;
  }
  return nullptr;
}

utf8proc_category_t category(CodePoint c) {
  return utf8proc_category(c);
}

// No (other number) characters that Unicode gives a digit value (Numeric_Type=Digit).
bool is_digit_form(CodePoint c) {
  return c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490) || c == 0x24EA || (c >= 0x24F5 && c <= 0x24FD) || c == 0x24FF ||
         (c >= 0x2776 && c <= 0x277E) || (c >= 0x2780 && c <= 0x2788) || (c >= 0x278A && c <= 0x2792);
}

}  // namespace

std::string sanitize_utf8(std::string_view bytes) {
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(bytes.data());
  std::string out;
  out.reserve(bytes.size());
  std::size_t at = 0;
  while (at < bytes.size()) {
    utf8proc_int32_t c = 0;
    const auto n = utf8proc_iterate(data + at, static_cast<utf8proc_ssize_t>(bytes.size() - at), &c);
    if (n <= 0) {
      append_utf8(out, kReplacement);
      ++at;
    } else {
      out.append(bytes.substr(at, static_cast<std::size_t>(n)));
      at += static_cast<std::size_t>(n);
    }
  }
  return out;
}

void append_utf8(std::string& out, CodePoint c) {
  if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) c = kReplacement;
  std::array<utf8proc_uint8_t, 4> buffer{};
  const auto n = utf8proc_encode_char(c, buffer.data());
  out.append(reinterpret_cast<const char*>(buffer.data()), static_cast<std::size_t>(n));
}

CodePoint next_code_point(std::string_view bytes, std::size_t& offset) {
  const auto lead = static_cast<unsigned char>(bytes[offset]);
  if (lead < 0x80) {
    ++offset;
    return lead;
  }
  utf8proc_int32_t c = 0;
  const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(bytes.data()) + offset,
                                  static_cast<utf8proc_ssize_t>(bytes.size() - offset), &c);
  if (n <= 0) {
    ++offset;
    return kReplacement;
  }
  offset += static_cast<std::size_t>(n);
  return c;
}

CodePoint previous_code_point(std::string_view bytes, std::size_t& offset) {
  do {
    --offset;
  } while (offset > 0 && (static_cast<unsigned char>(bytes[offset]) & 0xC0) == 0x80);
  std::size_t at = offset;
  return next_code_point(bytes, at);
}

std::size_t count_code_points(std::string_view bytes) {
  std::size_t count = 0;
  for (const char c : bytes) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

std::size_t code_point_offset(std::string_view bytes, std::size_t index) {
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if ((static_cast<unsigned char>(bytes[at]) & 0xC0) == 0x80) continue;
    if (index-- == 0) return at;
  }
  return bytes.size();
}

bool is_space(CodePoint c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_alpha(CodePoint c) {
  const auto cat = category(c);
  return cat == UTF8PROC_CATEGORY_LU || cat == UTF8PROC_CATEGORY_LL || cat == UTF8PROC_CATEGORY_LT ||
         cat == UTF8PROC_CATEGORY_LM || cat == UTF8PROC_CATEGORY_LO;
}

bool is_decimal(CodePoint c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}
bool is_digit(CodePoint c) {
  return is_decimal(c) || is_digit_form(c);
}
bool is_numeric(CodePoint c) {
  const auto cat = category(c);
  return cat == UTF8PROC_CATEGORY_ND || cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO;
}

bool is_upper(CodePoint c) {
  return utf8proc_isupper(c) != 0;
}
bool is_lower(CodePoint c) {
  return utf8proc_islower(c) != 0;
}
bool is_title(CodePoint c) {
  return category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_printable(CodePoint c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

bool is_line_break(CodePoint c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_identifier_start(CodePoint c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}

bool is_identifier_part(CodePoint c) {
  if (c < 0x80) return is_identifier_start(c) || (c >= '0' && c <= '9');
  const auto cat = category(c);
  return is_identifier_start(c) || cat == UTF8PROC_CATEGORY_ND || cat == UTF8PROC_CATEGORY_MN ||
         cat == UTF8PROC_CATEGORY_MC || cat == UTF8PROC_CATEGORY_PC;
}

void append_upper(std::string& out, CodePoint c) {
  if (const SpecialCase* special = find_special(c)) {
    out += special->upper;
  } else {
    append_utf8(out, utf8proc_toupper(c));
  }
}

void append_lower(std::string& out, CodePoint c) {
  if (c == 0x0130) {  // capital I with dot above keeps its dot
    out += "i\u0307";
  } else {
    append_utf8(out, utf8proc_tolower(c));
  }
}

void append_title(std::string& out, CodePoint c) {
  if (const SpecialCase* special = find_special(c)) {
    out += special->title;
  } else {
    append_utf8(out, utf8proc_totitle(c));
  }
}

void append_casefold(std::string& out, CodePoint c) {
  std::array<utf8proc_int32_t, 8> buffer{};
  int boundary_class = 0;
  const auto n = utf8proc_decompose_char(c, buffer.data(), buffer.size(), UTF8PROC_CASEFOLD, &boundary_class);
  if (n <= 0 || n > static_cast<utf8proc_ssize_t>(buffer.size())) {
    append_utf8(out, c);
    return;
  }
  for (utf8proc_ssize_t i = 0; i < n; ++i) append_utf8(out, buffer[static_cast<std::size_t>(i)]);
}

}  // namespace quire::jinja
