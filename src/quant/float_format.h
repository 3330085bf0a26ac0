// Purpose: unquantized weights (F32, F16, BF16), from GGUF or safetensors.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "quant/format.h"

namespace quire {

const Format& float_format();

// A whole tensor as float32; F32, F16, BF16 and the GGUF block types. For norms, biases and tests.
Result<std::vector<float>> read_as_f32(const TensorView& tensor);

// Packs a matrix of float32 rows that fill_row writes one at a time, rounded to `storage`.
Result<std::unique_ptr<PackedWeight>> pack_rounded(
    std::int64_t n, std::int64_t k, DType storage, Backend& backend,
    const std::function<void(std::int64_t row, float* out)>& fill_row);

// Checks that a weight is the matrix [n, k] that the model expects; shared by the formats.
Status check_matrix_shape(const TensorView& tensor, std::int64_t n, std::int64_t k);

}  // namespace quire
