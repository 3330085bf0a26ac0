// Purpose: linear layers and their weights, naive and readable: the oracle of every kernel's test.
// In: canonical rows, float32 activations. Out: float32. Sums are taken in double and rounded once.
// Thread: as Backend. Out of scope: speed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/backend.h"
#include "backend/packed_weight.h"
#include "base/thread_pool.h"

namespace quire::ref {

Result<std::unique_ptr<PackedWeight>> pack(const GroupedRows& rows);
Result<std::unique_ptr<PackedWeight>> pack(const FloatRows& rows);

void embed(const PackedWeight& table, std::span<const std::int32_t> ids, float* out);
void linear(ThreadPool& pool, ComputeMode mode, const LinearInput& input,
            std::span<const LinearTarget> targets);

// One row as integers with a scale per group of kActivationGroup values: scale = max|x| / limit, q = x times
// (limit / max|x|), rounded to nearest even. A group that is all zero, or too small for that factor, becomes
// zeros; a group with a NaN or an infinity has a scale that is not finite, so that the result is NaN and not
// a guess.
constexpr float kInt8Limit = 127.0f;
constexpr float kInt16Limit = 32512.0f;  // two signed bytes: 127 * 256
void quantize_row(const float* x, std::int64_t k, float limit, std::int16_t* q,
                  float* scales);  // scales: [ceil(k / 32)]

}  // namespace quire::ref
