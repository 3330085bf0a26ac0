// Purpose: a request body as JSON, refused early if it is malformed or abusive. In: bytes of a client. Out: a
// value whose strings are all valid UTF-8. Thread: plain functions.
// Rules (docs/flow.md): nesting and size are capped, also in fields nobody reads; a name given twice in one
// object is refused, since clients and proxies disagree on which one counts; NaN and Infinity are no JSON;
// lone surrogates and invalid UTF-8 are refused.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace quire {

// Keeps the order of names: chat templates print tools and arguments as they were sent.
using Json = nlohmann::ordered_json;

inline constexpr std::size_t kMaxJsonDepth = 128;
// A value takes some 40 bytes besides its text, so this bounds what a small body can make of itself.
inline constexpr std::size_t kMaxJsonValues = 4'000'000;

Result<Json> parse_json(std::string_view text);
// One line; what is not UTF-8 becomes U+FFFD, so this never fails.
std::string dump_json(const Json& value);
}  // namespace quire
