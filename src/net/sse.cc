#include "net/sse.h"

namespace quire {

std::string sse_event(std::string_view data) {
  std::string out;
  out.reserve(data.size() + 8);
  for (;;) {
    const std::size_t end = data.find_first_of("\r\n");
    out += "data: ";
    out += data.substr(0, end);
    out += '\n';
    if (end == std::string_view::npos) break;
    const bool crlf = data[end] == '\r' && end + 1 < data.size() && data[end + 1] == '\n';
    data.remove_prefix(end + (crlf ? 2 : 1));
  }
  out += '\n';
  return out;
}

std::string sse_comment(std::string_view text) {
  return ": " + std::string(text) + "\n\n";
}

}  // namespace quire
