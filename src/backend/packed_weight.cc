#include "backend/packed_weight.h"

namespace quire {

std::optional<std::int64_t> PackedImage::number(std::string_view name, std::int64_t low,
                                                std::int64_t high) const {
  for (const auto& [key, value] : numbers) {
    if (key == name && value >= low && value <= high) return value;
  }
  return std::nullopt;
}

std::span<const std::byte> PackedImage::array(std::string_view name) const {
  for (const Array& array : arrays) {
    if (array.name == name) return array.bytes;
  }
  return {};
}

}  // namespace quire
