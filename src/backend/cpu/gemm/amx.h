// Purpose: what the AMX kernels of linear layers are given, and the tables that export them. Raw pointers and
// plain structs only: this is the border between portable code (amx_weight.h, linear.cc) and the kernel
// files. In: weights packed for this tier, float32 rows. Out: float32 sums. Thread: kernels are pure; each
// call loads and releases the tile configuration of its own thread. Out of scope: bias, norms, activation
// functions.
//
// Arithmetic: y[t][j] = sum over k of bf16(w[j][k]) * bf16(x[t][k]), where w is what the checkpoint's format
// defines, in float32, and bf16() rounds to nearest even (denormals become zero). tdpbf16ps adds 32 features
// at a time in float32: 16 products of even and 16 of odd features in two chains, their sum to the
// accumulator. Every number of rows goes through the same instruction in the same order of features, and a
// column of a tile never sees another, so a row's result depends neither on the number of rows nor on its
// place.
//
// Operands: the weights are the first operand, so that one tile row is 32 features of one output column, and
// the activations the second. Then a weight of 4 or 5 bits needs no arithmetic of its own: its 16 or 32
// possible values, already rounded to bf16, are a table of one register per column and group, and unpacking
// is a word permutation. The price is a transposed result, 40 cycles per 16 x 16 outputs.
//
// A pair is two tiles of 16 columns. Packed weights are [num_pairs, num_blocks, 2, block], one stream in the
// order in which the kernel reads; a block is 16 columns x 32 features:
//   bf16: [16 columns][32] bf16, a tile as it is loaded
//   4 bits: 4 vectors of 32 words; word k of vector c / 4 has feature k of column c in nibble c % 4
//   5 bits: as 4, then one vector: bit c of word k is the fifth bit of feature k of column c
//   6 bits: 8 byte vectors, [2 columns][32] each; vector j is in the low (j < 4) or high nibbles of vector
//     j % 4, its upper two bits are bits 2 (j % 4) and up of vector 4 + j / 4
//   8 bits: [16 columns][32] bytes; q - zero, or q if there are minimums
// Scales and minimums are [num_pairs, num_groups, 32], super scales [num_pairs, num_supers, 32].
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/gemm/kernel_types.h"

namespace quire::cpu::gemm {

constexpr int kAmxPairCols = 2 * kTileCols;
constexpr int kAmxPanelRows = 16;  // rows of activations in one tile
// Rows of one kernel call at most: what unpacking a weight costs is spread over them.
constexpr int kAmxMaxRows = 512;

enum AmxLayout : int {
  kAmxBf16,
  kAmx4,        // groups of a multiple of 32
  kAmx4Halves,  // groups of any multiple of 16
  kAmx5,        // groups of a multiple of 32
  kAmx6,        // groups of any multiple of 16, as the rest
  kAmx8,        // signed, no minimums
  kAmx8Unsigned,
  kNumAmxLayouts,
};

struct AmxWeights {
  const std::uint8_t* data;
  const void* scales;  // of the kind scale_kind (kernel_types.h); padded columns and groups are 0
  const void* mins;    // the same, or null
  const std::uint16_t* super_scales;  // float16, or null
  const std::uint16_t* super_mins;
  std::int64_t num_blocks;
  std::int64_t num_groups;
  std::int64_t num_supers;
  int layout;  // AmxLayout
  int scale_kind;
  int zero;                // q - zero is the signed value; 0 if there are mins
  int segments_per_group;  // a segment is 32 features (kAmx4, kAmx5), else 16
  int groups_per_super;
};

// Activations lie in panels of 16 rows: [num_blocks][16 pairs of features][width][2] bf16. The width is 16,
// or for a layer of up to 8 rows the next power of two; rows that do not exist are zero.
static constexpr int amx_panel_width(std::int64_t num_rows) {
  int width = 1;
  while (width < num_rows && width < kAmxPanelRows) width *= 2;
  return width;
}
static constexpr std::int64_t amx_num_panels(std::int64_t num_rows) {
  return (num_rows + kAmxPanelRows - 1) / kAmxPanelRows;
}
static constexpr std::int64_t amx_panel_bytes(int width, std::int64_t num_blocks) {
  return num_blocks * 64 * width;
}
// Features (in blocks) that a call walks at once, for all its columns: at most 1 MiB of activations, half of
// the second-level cache of Sapphire Rapids, which the columns then read again and again.
static constexpr std::int64_t amx_walk_blocks(std::int64_t num_rows, std::int64_t num_blocks) {
  const std::int64_t rows = amx_num_panels(num_rows) * kAmxPanelRows;
  const std::int64_t fit = (std::int64_t{1} << 20) / (64 * rows);
  const std::int64_t walks = rows <= 2 * kAmxPanelRows ? 1 : (num_blocks + fit - 1) / fit;
  return (num_blocks + walks - 1) / walks;
}
// Floats of scratch memory that run() wants.
static constexpr std::int64_t amx_scratch_floats(std::int64_t num_pairs, std::int64_t num_rows,
                                                 std::int64_t num_blocks) {
  const std::int64_t kept = amx_walk_blocks(num_rows, num_blocks) == num_blocks ? 1 : num_pairs;
  return kept * amx_num_panels(num_rows) * kAmxPanelRows * kAmxPairCols;
}

struct AmxTable {
  const char* name;
  // One panel: x: [num_rows, k] with rows row_stride apart, num_rows <= width; out: amx_panel_bytes(width,
  // ...).
  void (*pack_panel)(const float* x, std::int64_t row_stride, int num_rows, int width, std::int64_t k,
                     std::int64_t num_blocks, std::uint16_t* out);
  // Pairs [first_pair, first_pair + num_pairs). x: the panels of num_rows (1..kAmxMaxRows) rows, 64-byte
  // aligned like scratch. out: [num_rows, 32 * num_pairs] with rows out_stride floats apart, overwritten.
  void (*run)(const AmxWeights& weights, std::int64_t first_pair, std::int64_t num_pairs,
              const std::uint16_t* x, int width, int num_rows, float* scratch, float* out,
              std::int64_t out_stride);
};

extern const AmxTable kAmxLinear;
// The same kernel body on tiles in plain C++ (amx_tiles_emulated.h), for tests on machines without AMX: with
// plain vectors, and with those of the avx512bf16 tier. No tier uses them.
extern const AmxTable kAmxEmulatedGeneric;
extern const AmxTable kAmxEmulatedAvx512Bf16;

}  // namespace quire::cpu::gemm
