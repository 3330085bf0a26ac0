#include "loader/wheel.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include <archive.h>
#include <archive_entry.h>
#include <fmt/core.h>

#include "loader/show.h"

namespace quire {
namespace {

std::string archive_message(archive* in) {
  const char* text = archive_error_string(in);
  return text == nullptr ? "unknown error" : text;
}

}  // namespace

Status read_wheel_member(const std::string& wheel_path, const std::string& member,
                         const std::function<Status(std::string_view)>& sink) {
  const std::string file_name = std::filesystem::path(wheel_path).filename().string();
  const std::unique_ptr<archive, decltype(&archive_read_free)> in(archive_read_new(), &archive_read_free);
  QUIRE_CHECK(in != nullptr);
  archive_read_support_format_zip_seekable(in.get());
  if (archive_read_open_filename(in.get(), wheel_path.c_str(), std::size_t{1} << 18) != ARCHIVE_OK) {
    return make_error(ErrorCode::kIo,
                      fmt::format("{} is not a wheel: {}", file_name, archive_message(in.get())));
  }
  archive_entry* entry = nullptr;
  int result = ARCHIVE_OK;
  while ((result = archive_read_next_header(in.get(), &entry)) == ARCHIVE_OK) {
    const char* name = archive_entry_pathname(entry);
    if (name == nullptr || member != name) continue;
    std::vector<char> buffer(std::size_t{1} << 20);
    while (true) {
      const la_ssize_t size = archive_read_data(in.get(), buffer.data(), buffer.size());
      if (size == 0) return {};
      if (size < 0) {
        return make_error(ErrorCode::kIo, fmt::format("{}: member {} is damaged: {}", file_name,
                                                      shown(member), archive_message(in.get())));
      }
      QUIRE_RETURN_IF_ERROR(sink({buffer.data(), static_cast<std::size_t>(size)}));
    }
  }
  if (result != ARCHIVE_EOF) {
    return make_error(ErrorCode::kIo, fmt::format("{} is damaged: {}", file_name, archive_message(in.get())));
  }
  return make_error(ErrorCode::kNotFound, fmt::format("{} has no member {}", file_name, shown(member)));
}

}  // namespace quire
