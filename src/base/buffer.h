// Purpose: memory that kernels can use: 64-byte aligned, zeroed, uncopied.
// Owner: whoever holds the Buffer.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace quire {

inline constexpr std::size_t kBufferAlignment = 64;

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t num_bytes);  // zeroed; pages are touched lazily by the kernel where possible
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  struct Unmap {
    std::size_t num_bytes;
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Unmap> data_{nullptr, Unmap{0}};
  std::size_t size_ = 0;
};

}  // namespace quire
