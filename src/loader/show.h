// Purpose: text from a file or a user, made safe to put into a message: one line, bounded, no control bytes.
// In: any bytes. Out: the text in quotes. Thread: any.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// "abc" with quotes; bytes outside printable ASCII as \xNN; cut after max_chars with "...".
std::string shown(std::string_view text, std::size_t max_chars = 120);

}  // namespace quire
