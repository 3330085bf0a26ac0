#include "text/utf8.h"

#include <cstdint>
#include <cstring>

namespace quire {

namespace {

// The second byte of a sequence has a narrower range after these leads (Unicode 15, table 3-7).
bool second_byte_ok(unsigned char lead, unsigned char second) {
  switch (lead) {
    case 0xe0:
      return second >= 0xa0 && second <= 0xbf;
    case 0xed:
      return second >= 0x80 && second <= 0x9f;
    case 0xf0:
      return second >= 0x90 && second <= 0xbf;
    case 0xf4:
      return second >= 0x80 && second <= 0x8f;
    default:
      return second >= 0x80 && second <= 0xbf;
  }
}

std::size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return 2;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  return 0;
}

}  // namespace

Utf8Char decode_utf8(std::string_view text, std::size_t pos) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(pos);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t length = sequence_length(lead);
  if (length == 0) return {kReplacementChar, 1, false};
  char32_t code = length == 2 ? lead & 0x1f : length == 3 ? lead & 0x0f : lead & 0x07;
  for (std::size_t i = 1; i < length; ++i) {
    if (pos + i >= text.size()) return {kReplacementChar, i, false};
    const unsigned char next = byte(pos + i);
    const bool ok = i == 1 ? second_byte_ok(lead, next) : (next & 0xc0) == 0x80;
    if (!ok) return {kReplacementChar, i, false};
    code = code << 6 | (next & 0x3f);
  }
  return {code, length, true};
}

void append_utf8(std::string& out, char32_t code) {
  if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) code = kReplacementChar;
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xc0 | code >> 6));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | code >> 12));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else {
    out.push_back(static_cast<char>(0xf0 | code >> 18));
    out.push_back(static_cast<char>(0x80 | (code >> 12 & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

namespace {

// The first position at or after pos that is not ASCII.
std::size_t skip_ascii(std::string_view text, std::size_t pos) {
  while (pos + 8 <= text.size()) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + pos, 8);
    if (word & 0x8080808080808080ull) break;
    pos += 8;
  }
  while (pos < text.size() && static_cast<unsigned char>(text[pos]) < 0x80) ++pos;
  return pos;
}

}  // namespace

bool is_ascii(std::string_view text) {
  return skip_ascii(text, 0) == text.size();
}

bool is_valid_utf8(std::string_view text) {
  std::size_t pos = skip_ascii(text, 0);
  while (pos < text.size()) {
    const Utf8Char c = decode_utf8(text, pos);
    if (!c.valid) return false;
    pos += c.length;
    if (pos < text.size() && static_cast<unsigned char>(text[pos]) < 0x80) pos = skip_ascii(text, pos);
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    if (c.valid) {
      out.append(text.substr(pos, c.length));
    } else {
      append_utf8(out, kReplacementChar);
    }
    pos += c.length;
  }
  return out;
}

std::size_t partial_utf8_suffix(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const std::size_t pos = text.size() - back;
    const unsigned char lead = static_cast<unsigned char>(text[pos]);
    if ((lead & 0xc0) == 0x80) continue;
    if (sequence_length(lead) <= back) return 0;
    // Partial only if what is there so far can still become a character.
    return decode_utf8(text, pos).length == back ? back : 0;
  }
  return 0;
}

}  // namespace quire
