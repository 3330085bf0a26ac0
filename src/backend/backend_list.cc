#include "backend/backend_list.h"

#include <fmt/core.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/ref/ref_backend.h"

namespace quire {
namespace {

Result<std::unique_ptr<Backend>> make_ref(const BackendOptions& options) {
  return ref::make_ref_backend(options);
}

constexpr BackendEntry kBackends[] = {
    {"cpu", cpu::make_cpu_backend},
    {"ref", make_ref},
};

}  // namespace

std::span<const BackendEntry> backend_list() {
  return kBackends;
}

Result<std::unique_ptr<PackedWeight>> Backend::restore(const PackedImage& image,
                                                       std::shared_ptr<const void> /*owner*/) {
  return make_error(ErrorCode::kUnsupported,
                    fmt::format("backend {} cannot restore weights of kind \"{}\"", name(), image.kind));
}

Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options) {
  if (options.num_threads < 1)
    return invalid(fmt::format("number of threads is {}, want at least 1", options.num_threads));
  std::string names;
  for (const BackendEntry& entry : kBackends) {
    if (entry.name == name) return entry.make(options);
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  return make_error(ErrorCode::kNotFound, fmt::format("unknown backend '{}'; there is: {}", name, names));
}

}  // namespace quire
