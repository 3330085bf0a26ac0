// Purpose: a whole file, mapped read-only. Owner: the holder; the bytes live as long as it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace quire {

class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, std::size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The whole file as a string; an error if it is larger than max_bytes.
Result<std::string> read_file(const std::string& path, std::size_t max_bytes = std::size_t{256} << 20);

}  // namespace quire
