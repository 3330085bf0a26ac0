// Purpose: what the compute modes of backend.h have in common over all backends.
// The rule behind `auto` (choose_compute_mode) is in compute_mode.cc. Thread: any.
#pragma once

#include <cstdint>

namespace quire {

// In int8 mode, this many consecutive activations share one scale: the error of the best logprob is 0.010 to
// 0.035 on the reference models, against 0.058 to 0.136 with one scale per token.
inline constexpr std::int64_t kActivationGroup = 32;

// Integer dot products run over pieces of this many features, or twice that. A quantized weight whose group
// size is not a multiple of it is computed as a float weight.
inline constexpr std::int64_t kIntegerPiece = 16;

}  // namespace quire
