#include "loader/show.h"

#include <fmt/core.h>

namespace quire {

std::string shown(std::string_view text, std::size_t max_chars) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == max_chars) {
      out += "...";
      break;
    }
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte >= 0x7f || byte == '"' || byte == '\\') {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += text[i];
    }
  }
  out += '"';
  return out;
}

}  // namespace quire
