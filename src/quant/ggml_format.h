// Purpose: GGUF's block-quantized types (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K..Q6_K) -> GroupedRows, exactly.
// Source of the layouts: the GGUF specification and ggml's block definitions (ggml-common.h), restated in the
// .cc.
#pragma once

#include <span>

#include "base/thread_pool.h"
#include "quant/format.h"

namespace quire {

const Format& ggml_format();

bool is_ggml_block_type(TensorType type);

// Rows [n, k] of a tensor of a block type; row j comes from row permutation[j] if one is given. pool may be
// null. k must be a multiple of the type's block (the loader has checked it).
GroupedRows unpack_ggml_rows(const TensorView& tensor, std::int64_t n, std::int64_t k,
                             std::span<const std::int32_t> permutation, ThreadPool* pool);

// out[c] = the value of row `row`, column c, in float32 as ggml computes it; [k].
void dequantize_row(const GroupedRows& rows, std::int64_t row, float* out);

}  // namespace quire
