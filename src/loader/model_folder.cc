#include "loader/model_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fmt/core.h>

#include "base/mapped_file.h"
#include "loader/show.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Resolves links by reading them; opens nothing. "" and errno on failure.
std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : std::string();
}

constexpr std::string_view kCachePrefix = "models--";

// The models--ORG--NAME folder if real is models--ORG--NAME/snapshots/REVISION, else "".
std::string cache_tree(const std::string& real) {
  const fs::path snapshots = fs::path(real).parent_path();
  if (snapshots.filename() != "snapshots") return "";
  const fs::path model = snapshots.parent_path();
  return model.filename().string().rfind(kCachePrefix, 0) == 0 ? model.string() : "";
}

bool is_inside(const std::string& path, const std::string& tree) {
  if (tree == "/") return true;
  return path.size() > tree.size() && path.compare(0, tree.size(), tree) == 0 && path[tree.size()] == '/';
}

// Whether name is relative and no part of it climbs.
bool is_plain_relative(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.size() > 4096 ||
      name.find('\0') != std::string_view::npos || name.find('\\') != std::string_view::npos) {
    return false;
  }
  while (true) {
    const std::size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

}  // namespace

Result<ModelFolder> ModelFolder::open(const std::string& path) {
  ModelFolder folder;
  folder.path_ = path;
  folder.real_ = real_path(path);
  if (folder.real_.empty()) {
    return make_error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                      fmt::format("cannot open folder {}: {}", path, std::strerror(errno)));
  }
  const std::string cache = cache_tree(folder.real_);
  folder.tree_ = cache.empty() ? folder.real_ : cache;
  std::error_code error;
  for (fs::directory_iterator it(folder.real_, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    // A link that cannot be followed is left out here; resolve() says what is wrong with it.
    if (it->is_regular_file(ignored) || it->is_symlink(ignored)) {
      folder.file_names_.push_back(it->path().filename().string());
    }
  }
  if (error) {
    return make_error(ErrorCode::kIo, fmt::format("cannot list folder {}: {}", path, error.message()));
  }
  std::sort(folder.file_names_.begin(), folder.file_names_.end());
  return folder;
}

Result<std::string> ModelFolder::resolve(std::string_view name) const {
  if (!is_plain_relative(name)) {
    return invalid(
        fmt::format("{}: the name {} leads outside the model folder; it must be relative, without \"..\"",
                    path_, shown(name)));
  }
  const std::string joined = real_ + "/" + std::string(name);
  const std::string real = real_path(joined);
  if (real.empty()) {
    return make_error(
        errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
        fmt::format("{}: file {} cannot be found: {}", path_, shown(name), std::strerror(errno)));
  }
  if (!is_inside(real, tree_)) {
    return invalid(
        fmt::format("{}: {} is a symbolic link that leads outside the model folder; copy the file into it",
                    path_, shown(name)));
  }
  return real;
}

Result<std::string> ModelFolder::read_optional(std::string_view name, std::size_t max_bytes) const {
  auto real = resolve(name);
  if (!real.ok()) {
    if (real.error().code != ErrorCode::kNotFound) return real.error();
    // A dangling link is a broken folder, not an absent file.
    std::error_code error;
    if (fs::is_symlink(fs::path(real_) / name, error)) return real.error();
    return std::string();
  }
  return read_file(*real, max_bytes);
}

std::string ModelFolder::model_name() const {
  fs::path own(real_);
  const std::string cache = cache_tree(real_);
  if (cache.empty()) return own.filename().string();
  const std::string name = fs::path(cache).filename().string();
  const std::size_t last = name.rfind("--");
  return name.substr(last + 2);
}

}  // namespace quire
