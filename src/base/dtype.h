// Purpose: the element types of runtime data, and exact conversions of single values between them.
// Out of scope: block-quantized checkpoint types (loader/tensor_source.h), arrays (backend/).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quire {

enum class DType : std::uint8_t { kF32, kF16, kBf16 };

constexpr std::size_t dtype_bytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : 2;
}
constexpr std::string_view dtype_name(DType dtype) {
  return dtype == DType::kF32 ? "f32" : dtype == DType::kF16 ? "f16" : "bf16";
}

inline float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Round to nearest, ties to even; NaN stays NaN (quiet).
inline std::uint16_t f32_to_bf16(float value) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>(bits >> 16);
}

float f16_to_f32(std::uint16_t bits);
// Round to nearest, ties to even; overflow gives infinity.
std::uint16_t f32_to_f16(float value);

// The nearest value that dtype can hold.
float round_to(DType dtype, float value);

}  // namespace quire
