// Any bytes as a GGUF file: an error or tensors that lie inside the bytes, never a crash, never memory far
// beyond the input's size.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "loader/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = quire::parse_gguf(bytes, "fuzz.gguf");
  if (!file.ok()) {
    QUIRE_CHECK(!file.error().message.empty());
    return 0;
  }
  unsigned sum = 0;
  for (const quire::TensorView& tensor : file->tensors) {
    QUIRE_CHECK(!tensor.shape.empty());
    const quire::TensorTypeInfo& info = quire::tensor_type_info(tensor.type);
    QUIRE_CHECK_EQ(tensor.num_values() / info.block_values * info.block_bytes,
                   static_cast<std::int64_t>(tensor.data.size()));
    // Touch both ends: they must be inside the input.
    sum += static_cast<unsigned>(tensor.data.front()) + static_cast<unsigned>(tensor.data.back());
  }
  volatile unsigned sink = sum;
  (void)sink;
  return 0;
}
