// Any bytes as a safetensors file, and as an index: an error, or tensors that cover the data exactly.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "loader/safetensors.h"

namespace {

void check_file(std::span<const std::byte> bytes) {
  const auto tensors = quire::parse_safetensors(bytes, "fuzz.safetensors");
  if (!tensors.ok()) {
    QUIRE_CHECK(!tensors.error().message.empty());
    return;
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  std::size_t covered = sizeof(header_bytes) + header_bytes;
  unsigned sum = 0;
  for (const quire::TensorView& tensor : *tensors) {
    QUIRE_CHECK_EQ(tensor.num_values() * quire::tensor_type_info(tensor.type).block_bytes,
                   static_cast<std::int64_t>(tensor.data.size()));
    covered += tensor.data.size();
    if (tensor.data.empty()) continue;
    sum += static_cast<unsigned>(tensor.data.front()) + static_cast<unsigned>(tensor.data.back());
  }
  QUIRE_CHECK_EQ(covered, bytes.size());
  volatile unsigned sink = sum;
  (void)sink;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check_file({reinterpret_cast<const std::byte*>(data), size});
  // The same bytes as a header with its right length in front: a fuzzer seldom finds that length by itself.
  std::string whole(sizeof(std::uint64_t), '\0');
  const std::uint64_t header_bytes = size;
  std::memcpy(whole.data(), &header_bytes, sizeof(header_bytes));
  whole.append(reinterpret_cast<const char*>(data), size);
  whole.append(64, '\0');
  check_file({reinterpret_cast<const std::byte*>(whole.data()), whole.size() - 64});
  check_file({reinterpret_cast<const std::byte*>(whole.data()), whole.size()});
  const auto index =
      quire::parse_safetensors_index({reinterpret_cast<const char*>(data), size}, "fuzz.index.json");
  QUIRE_CHECK(index.ok() ? !index->empty() : !index.error().message.empty());
  return 0;
}
