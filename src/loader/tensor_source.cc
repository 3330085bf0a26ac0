#include "loader/tensor_source.h"

#include <array>

#include "base/check.h"

namespace quire {
namespace {

// Block sizes of GGUF's types: a block of 32 values carries one f16 scale (Qx_1 also an f16 minimum), a
// k-quant super-block of 256 carries packed sub-scales. Bytes per block follow from the bit counts, e.g.
// Q4_K: 2 x f16 + 12 (eight 6-bit scales and minima) + 256 / 2 = 144.
constexpr std::array<TensorTypeInfo, 22> kInfos = {{
    {"F32", 1, 4},         // kF32
    {"F16", 1, 2},         // kF16
    {"BF16", 1, 2},        // kBf16
    {"F64", 1, 8},         // kF64
    {"I8", 1, 1},          // kI8
    {"U8", 1, 1},          // kU8
    {"I16", 1, 2},         // kI16
    {"I32", 1, 4},         // kI32
    {"I64", 1, 8},         // kI64
    {"BOOL", 1, 1},        // kBool
    {"F8_E4M3", 1, 1},     // kF8E4M3
    {"F8_E5M2", 1, 1},     // kF8E5M2
    {"Q4_0", 32, 2 + 16},  // kQ4_0
    {"Q4_1", 32, 4 + 16},
    {"Q5_0", 32, 2 + 4 + 16},
    {"Q5_1", 32, 4 + 4 + 16},
    {"Q8_0", 32, 2 + 32},
    {"Q2_K", 256, 16 + 64 + 4},
    {"Q3_K", 256, 32 + 64 + 12 + 2},
    {"Q4_K", 256, 4 + 12 + 128},
    {"Q5_K", 256, 4 + 12 + 32 + 128},
    {"Q6_K", 256, 128 + 64 + 16 + 2},
}};
static_assert(static_cast<std::size_t>(TensorType::kQ6_K) + 1 == kInfos.size());

}  // namespace

const TensorTypeInfo& tensor_type_info(TensorType type) {
  const auto index = static_cast<std::size_t>(type);
  QUIRE_CHECK_LT(index, kInfos.size());
  return kInfos[index];
}

std::int64_t TensorView::num_values() const {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) count *= dim;  // the reader has checked that this fits
  return count;
}

}  // namespace quire
