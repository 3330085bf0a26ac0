#include "base/buffer.h"

#include <cerrno>
#include <cstring>
#include <new>

#include <sys/mman.h>

#include "base/check.h"

namespace quire {

// mmap gives zeroed pages on first touch, so a large KV pool costs memory only as it fills.
Buffer::Buffer(std::size_t num_bytes) : size_(num_bytes) {
  if (num_bytes == 0) return;
  void* memory = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  if (num_bytes >= (std::size_t{2} << 20)) madvise(memory, num_bytes, MADV_HUGEPAGE);
  data_ = std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(memory), Unmap{num_bytes});
}

Buffer Buffer::view(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  QUIRE_CHECK(owner != nullptr);
  Buffer out;
  out.data_ = std::unique_ptr<std::byte, Unmap>(const_cast<std::byte*>(bytes.data()), Unmap{0});
  out.size_ = bytes.size();
  out.owner_ = std::move(owner);
  return out;
}

void Buffer::Unmap::operator()(std::byte* data) const {
  if (num_bytes > 0) munmap(data, num_bytes);
}

}  // namespace quire
