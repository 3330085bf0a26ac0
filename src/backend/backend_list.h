// Purpose: the backends there are, by name (make_backend of backend/backend.h looks here).
// To add one: a folder under backend/ and one line in backend_list.cc. Thread: immutable.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "base/result.h"

namespace quire {

struct BackendEntry {
  std::string_view name;
  Result<std::unique_ptr<Backend>> (*make)(const BackendOptions& options);
};
std::span<const BackendEntry> backend_list();

}  // namespace quire
