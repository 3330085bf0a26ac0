// Purpose: memory that kernels can use: 64-byte aligned, uncopied. Either its own, zeroed, or a read-only
// view of memory that somebody else keeps (a mapped file). Owner: whoever holds the Buffer.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/check.h"

namespace quire {

inline constexpr std::size_t kBufferAlignment = 64;

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t num_bytes);  // zeroed; pages are touched lazily by the kernel where possible
  // Bytes that owner keeps alive; they may be read only, so only const access is allowed.
  static Buffer view(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);
  std::byte* data() {
    QUIRE_CHECK(owner_ == nullptr) << "a view is read only";
    return data_.get();
  }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  struct Unmap {
    std::size_t num_bytes;  // 0: not ours
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Unmap> data_{nullptr, Unmap{0}};
  std::size_t size_ = 0;
  std::shared_ptr<const void> owner_;  // of a view, else null
};

}  // namespace quire
