#include "base/mapped_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace quire {

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return make_error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                      fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return make_error(ErrorCode::kIo, fmt::format("{} is not a regular file", path));
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) {
    // Shared: processes that map one file share its pages whatever the kind; MAP_SHARED also says so to those
    // who read /proc.
    data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      const int saved = errno;
      ::close(fd);
      return make_error(ErrorCode::kIo, fmt::format("cannot map {}: {}", path, std::strerror(saved)));
    }
  }
  ::close(fd);
  const FileIdentity identity{size, info.st_mtim.tv_sec * std::int64_t{1'000'000'000} + info.st_mtim.tv_nsec,
                              info.st_ino, info.st_dev};
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, static_cast<const std::byte*>(data), identity));
}

MappedFile::~MappedFile() {
  if (size_ > 0) munmap(const_cast<std::byte*>(data_), size_);
}

Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  QUIRE_TRY(const auto file, MappedFile::open(path));
  const auto bytes = file->bytes();
  if (bytes.size() > max_bytes) {
    return make_error(ErrorCode::kTooLarge, fmt::format("{} has {} bytes, more than the limit of {}", path,
                                                        bytes.size(), max_bytes));
  }
  if (bytes.empty()) return std::string();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace quire
