// Purpose: unquantized weights (F32, F16, BF16), from GGUF or safetensors.
#pragma once

#include <vector>

#include "quant/format.h"

namespace quire {

const Format& float_format();

// A whole tensor as float32; F32, F16, BF16 and the GGUF block types. For norms, biases and tests.
Result<std::vector<float>> read_as_f32(const TensorView& tensor);

// Checks that a weight is the matrix [n, k] that the model expects; shared by the formats.
Status check_matrix_shape(const TensorView& tensor, std::int64_t n, std::int64_t k);

}  // namespace quire
