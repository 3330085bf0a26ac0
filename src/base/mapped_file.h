// Purpose: a whole file, mapped read-only. Owner: the holder; the bytes live as long as it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace quire {

// Which file this is and whether it has been written to since, as far as the file system tells.
struct FileIdentity {
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  std::uint64_t inode = 0;
  std::uint64_t device = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }  // when it was opened

 private:
  MappedFile(std::string path, const std::byte* data, const FileIdentity& identity)
      : path_(std::move(path)), data_(data), size_(identity.bytes), identity_(identity) {}
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  FileIdentity identity_;
};

// The whole file as a string; an error if it is larger than max_bytes.
Result<std::string> read_file(const std::string& path, std::size_t max_bytes = std::size_t{256} << 20);

}  // namespace quire
