// Purpose: one member of a wheel (a zip archive), as a stream. In: a file. Out: bytes to a sink. Thread: any.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire {

// The sink's error ends the reading and is returned. The archive's own checksum of the member is verified.
Status read_wheel_member(const std::string& wheel_path, const std::string& member,
                         const std::function<Status(std::string_view)>& sink);

}  // namespace quire
