// Purpose: server-sent events (WHATWG HTML, 9.2) as bytes. Thread: plain functions.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// "data: LINE\n" for each line of data, and the empty line that ends the event.
std::string sse_event(std::string_view data);
// A line that clients skip; keeps idle proxies from closing the connection.
std::string sse_comment(std::string_view text);

}  // namespace quire
