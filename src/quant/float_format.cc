#include "quant/float_format.h"

#include <cstring>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "quant/ggml_format.h"

namespace quire {
namespace {

bool is_float(TensorType type, DType* dtype) {
  switch (type) {
    case TensorType::kF32:
      *dtype = DType::kF32;
      return true;
    case TensorType::kF16:
      *dtype = DType::kF16;
      return true;
    case TensorType::kBf16:
      *dtype = DType::kBf16;
      return true;
    default:
      return false;
  }
}

// out[i] = value first + i of an array that may be misaligned.
void widen(const std::byte* data, DType dtype, std::size_t first, std::size_t count, float* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, data + first * sizeof(float), count * sizeof(float));
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, data + 2 * (first + i), 2);
    out[i] = dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
}

class FloatFormat final : public Format {
 public:
  const char* name() const override { return "float (F32, F16, BF16)"; }

  bool recognises(const TensorSource& source, const std::string& layer) const override {
    const TensorView* tensor = source.find(layer + ".weight");
    DType dtype;
    return tensor != nullptr && is_float(tensor->type, &dtype);
  }

  Result<std::unique_ptr<PackedWeight>> load(const TensorSource& source, const LayerRequest& request,
                                             Backend& backend) const override {
    const TensorView& tensor = *source.find(request.name + ".weight");
    QUIRE_RETURN_IF_ERROR(check_matrix_shape(tensor, request.n, request.k));
    FloatRows rows;
    rows.n = request.n;
    rows.k = request.k;
    QUIRE_CHECK(is_float(tensor.type, &rows.storage));
    if (request.hold_as.has_value() && *request.hold_as != rows.storage) {
      return pack_rounded(request.n, request.k, *request.hold_as, backend, [&](std::int64_t row, float* out) {
        const auto from =
            request.permutation.empty() ? row : request.permutation[static_cast<std::size_t>(row)];
        widen(tensor.data.data(), rows.storage, static_cast<std::size_t>(from * request.k),
              static_cast<std::size_t>(request.k), out);
      });
    }
    const std::size_t row_bytes = static_cast<std::size_t>(request.k) * dtype_bytes(rows.storage);
    // Safetensors promises no alignment and a permutation needs its own order; both take a copy.
    const bool misaligned =
        reinterpret_cast<std::uintptr_t>(tensor.data.data()) % dtype_bytes(rows.storage) != 0;
    Buffer copy;
    rows.data = tensor.data.data();
    if (misaligned || !request.permutation.empty()) {
      copy = Buffer(tensor.data.size());
      backend.pool().run(request.n, [&](std::int64_t row) {
        const auto from =
            request.permutation.empty() ? row : request.permutation[static_cast<std::size_t>(row)];
        std::memcpy(copy.data() + static_cast<std::size_t>(row) * row_bytes,
                    tensor.data.data() + static_cast<std::size_t>(from) * row_bytes, row_bytes);
      });
      rows.data = copy.data();
    }
    return backend.pack(rows);
  }
};

}  // namespace

const Format& float_format() {
  static const FloatFormat format;
  return format;
}

Result<std::unique_ptr<PackedWeight>> pack_rounded(
    std::int64_t n, std::int64_t k, DType storage, Backend& backend,
    const std::function<void(std::int64_t row, float* out)>& fill_row) {
  Buffer copy(static_cast<std::size_t>(n * k) * dtype_bytes(storage));
  backend.pool().run(n, [&](std::int64_t row) {
    if (storage == DType::kF32) {
      fill_row(row, copy.as<float>() + row * k);
      return;
    }
    std::vector<float> values(static_cast<std::size_t>(k));
    fill_row(row, values.data());
    std::uint16_t* out = copy.as<std::uint16_t>() + row * k;
    for (std::int64_t i = 0; i < k; ++i) {
      const float value = values[static_cast<std::size_t>(i)];
      out[i] = storage == DType::kBf16 ? f32_to_bf16(value) : f32_to_f16(value);
    }
  });
  FloatRows rows;
  rows.n = n;
  rows.k = k;
  rows.storage = storage;
  rows.data = copy.data();
  return backend.pack(rows);
}

Status check_matrix_shape(const TensorView& tensor, std::int64_t n, std::int64_t k) {
  if (tensor.shape.size() == 2 && tensor.shape[0] == n && tensor.shape[1] == k) return {};
  return invalid(fmt::format("tensor {} has shape [{}], but the model's configuration asks for [{}, {}]",
                             tensor.name, fmt::join(tensor.shape, ", "), n, k));
}

Result<std::vector<float>> read_as_f32(const TensorView& tensor) {
  DType dtype;
  const auto count = static_cast<std::size_t>(tensor.num_values());
  std::vector<float> values(count);
  if (is_float(tensor.type, &dtype)) {
    widen(tensor.data.data(), dtype, 0, count, values.data());
    return values;
  }
  if (is_ggml_block_type(tensor.type)) {
    const std::int64_t k = tensor.shape.back();
    const std::int64_t n = k == 0 ? 0 : tensor.num_values() / k;
    const GroupedRows rows = unpack_ggml_rows(tensor, n, k, {}, nullptr);
    for (std::int64_t r = 0; r < n; ++r) dequantize_row(rows, r, values.data() + r * k);
    return values;
  }
  return make_error(ErrorCode::kUnsupported, fmt::format("tensor {} has type {}, where numbers are needed",
                                                         tensor.name, tensor_type_info(tensor.type).name));
}

}  // namespace quire
