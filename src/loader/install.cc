#include "loader/install.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace quire {
namespace {

namespace fs = std::filesystem;

Error file_error(const std::string& what, int number) {
  const bool full = number == ENOSPC || number == EDQUOT || number == EFBIG;
  return make_error(ErrorCode::kIo,
                    fmt::format("{}: {}{}", what, std::strerror(number),
                                full ? " (free some space, or set QUIRE_HOME to a larger disk)" : ""));
}

Status sync_folder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return file_error("cannot open " + path, errno);
  ::fsync(fd);  // some file systems refuse this on a folder; the rename itself has been done
  ::close(fd);
  return {};
}

}  // namespace

Status make_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    return make_error(ErrorCode::kIo, fmt::format("cannot create folder {}: {}", path, error.message()));
  return {};
}

std::string bytes_text(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1'000'000) return fmt::format("{:.1f} kB", value / 1e3);
  if (bytes < 1'000'000'000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.2f} GB", value / 1e9);
}

std::string staging_path(const std::string& models_folder, const std::string& name) {
  return models_folder + "/.staging/" + name;
}

Result<InstallLock> InstallLock::acquire(const std::string& models_folder, const std::string& name,
                                         const std::atomic<bool>* cancelled,
                                         const std::function<void()>& on_wait) {
  QUIRE_RETURN_IF_ERROR(make_folders(models_folder + "/.staging"));
  // The lock file stays: removing it would let two processes hold locks on two files of one name.
  const std::string path = staging_path(models_folder, name) + ".lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return file_error("cannot create " + path, errno);
  InstallLock lock(fd);
  bool told = false;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return file_error("cannot lock " + path, errno);
    if (cancelled != nullptr && cancelled->load()) return make_error(ErrorCode::kCancelled, "interrupted");
    if (!told && on_wait) on_wait();
    told = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return lock;
}

InstallLock::~InstallLock() {
  if (fd_ >= 0) ::close(fd_);  // releases the lock
}

Result<ScratchFolder> ScratchFolder::create(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return make_error(ErrorCode::kIo, fmt::format("cannot clear {}: {}", path, error.message()));
  QUIRE_RETURN_IF_ERROR(make_folders(path));
  return ScratchFolder(path);
}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Result<OutputFile> OutputFile::open(const std::string& path, bool append) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (append ? O_APPEND : O_TRUNC), 0644);
  if (fd < 0) return file_error("cannot create " + path, errno);
  return OutputFile(path, fd);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return file_error("cannot write " + path_, errno);
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Status OutputFile::clear() {
  if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0)
    return file_error("cannot empty " + path_, errno);
  return {};
}

Status OutputFile::finish() {
  const int fd = fd_;
  fd_ = -1;
  if (::fsync(fd) != 0) {
    const int saved = errno;
    ::close(fd);
    return file_error("cannot write " + path_, saved);
  }
  if (::close(fd) != 0) return file_error("cannot write " + path_, errno);
  return {};
}

Status check_free_space(const std::string& folder, std::uint64_t needed) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return {};  // unknown: the writes will tell
  const std::uint64_t free_bytes = std::uint64_t{info.f_bavail} * info.f_frsize;
  if (free_bytes >= needed) return {};
  return make_error(
      ErrorCode::kIo,
      fmt::format("the disk is too full: {} are needed in {}, {} are free (free some space, or set "
                  "QUIRE_HOME to a larger disk)",
                  bytes_text(needed), folder, bytes_text(free_bytes)));
}

Status move_into_place(const std::string& from, const std::string& to) {
  struct stat info {};
  if (::lstat(to.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    // A folder with files in it cannot be replaced by plain rename: the two swap places, and the old one, now
    // in the staging folder, is removed.
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
      std::error_code ignored;
      fs::remove_all(from, ignored);
      return sync_folder(fs::path(to).parent_path().string());
    }
    // Not offered by this file system: a moment without the model, none with half of it.
    const std::string aside = from + ".old";
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    if (::rename(to.c_str(), aside.c_str()) != 0) return file_error("cannot move " + to, errno);
    if (::rename(from.c_str(), to.c_str()) != 0) {
      const int saved = errno;
      (void)::rename(aside.c_str(), to.c_str());
      return file_error("cannot create " + to, saved);
    }
    fs::remove_all(aside, ignored);
  } else if (::rename(from.c_str(), to.c_str()) != 0) {
    return file_error("cannot create " + to, errno);
  }
  return sync_folder(fs::path(to).parent_path().string());
}

}  // namespace quire
