// Purpose: the `ref` backend: every operation in its plainest form. The oracle of the kernel tests, and the
// reference forward pass of a model. In/out/thread: as Backend. Out of scope: speed.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace quire::ref {

std::unique_ptr<Backend> make_ref_backend(const BackendOptions& options);

}  // namespace quire::ref
