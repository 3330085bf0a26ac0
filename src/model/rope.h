// Purpose: the cosine and sine tables of rotary position embeddings, with the scalings in use.
// In: ModelConfig, number of positions. Out: float32 tables computed in double (LDR-13: never in bf16).
// Sources: RoPE arXiv:2104.09864; position interpolation arXiv:2306.15595; NTK-aware scaling as in Hugging
// Face transformers ("dynamic"); YaRN arXiv:2309.00071; Llama 3.1 as in Meta's reference (llama-models,
// model.py).
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "model/config.h"

namespace quire {

// The angle per position of each rotated pair, and the factor on cos and sin.
struct RopeFrequencies {
  std::vector<double> inverse;  // [rope_dim / 2], radians per position
  double amplitude = 1.0;
};

struct RopeTable {
  RopeFrequencies frequencies;
  std::int64_t num_positions = 0;
  std::int64_t half_dim = 0;
  std::vector<float> cos;  // [num_positions, half_dim]
  std::vector<float> sin;  // [num_positions, half_dim]
};

// "dynamic" scaling is taken at num_positions, the longest sequence this server will hold, and does not
// change while a sequence grows: otherwise a cached key would depend on when it was computed (contract of
// exactness).
// pool: spreads the work; may be null.
RopeTable make_rope_table(const ModelConfig& config, std::int64_t num_positions, ThreadPool* pool = nullptr);

// One row of the table, [half_dim] each, for any position: the angle is a double, whose error at position
// 2^31 is below 1e-6 radians.
void fill_rope_row(const RopeFrequencies& frequencies, std::int64_t position, float* cos, float* sin);

RopeFrequencies rope_frequencies(const ModelConfig& config, std::int64_t num_positions);

}  // namespace quire
