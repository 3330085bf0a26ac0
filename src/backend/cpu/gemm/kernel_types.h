// Purpose: what a linear-layer kernel is given: raw pointers to one tile of packed weights and to prepared
// activations. This is the border between portable code and the kernel files, so it holds plain structs and
// nothing inline. In: filled by packed_weight.cc (tiles) and linear.cc (rows). Thread: kernels are pure.
//
// A tile is 16 output features ("columns") and all input features, padded with zeros to blocks of 32.
//
// Grouped tiles: data is [num_blocks, block_bytes]. The 32 x 16 values of a block are 8 "quads"; quad j is 64
// bytes: for each column, features 4j..4j+3 of the block, which is the operand order of a 4-way byte dot
// product. By bits:
//   4: 4 vectors of 64 bytes; vector i has quad i in the low and quad i + 4 in the high nibbles
//   5: as 4, then 64 bytes whose bit j holds the fifth bit of quad j
//   6: as 4, then 2 x 64 bytes; bits 2(j % 4), 2(j % 4) + 1 of vector j / 4 are the upper bits of quad j
//   8: 8 vectors, quad j as bytes
// Scales (and minimums) are [num_groups, 16].
//
// Dense tiles: f32 and f16 are [k, 16]; bf16 is [k / 2, 16, 2], the operand order of a pairwise dot product.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::cpu::gemm {

constexpr int kTileCols = 16;
constexpr int kBlockK = 32;
// Rows a kernel call may get: their results and inputs should stay in the first cache levels.
constexpr int kPanelRows = 256;
// Tiles a kernel call may get.
constexpr int kMaxTiles = 2;

enum ScaleKind : int {
  kScaleF16,    // scale[group] is float16
  kScaleCodes,  // scale = super_scale[super] * code[group]: float16 times int8 (minimums: uint8)
  kScaleF32,
};

struct GroupedTile {
  const std::uint8_t* data;
  const void* scales;                 // [num_groups, 16]
  const void* mins;                   // the same, or null
  const std::uint16_t* super_scales;  // [num_supers, 16], float16, or null
  const std::uint16_t* super_mins;
  std::int64_t num_blocks;
  int scale_kind;
  int zero;                // q - zero is the signed value; 0 if there are mins
  int segments_per_group;  // a segment is 16 or 32 features: whichever kernel variant the weight asks for
  int groups_per_super;    // 0 if there are none
};

// Magnitudes of quantized activations: scale = largest / limit. 32512 = 127 * 256 splits into two signed
// bytes.
constexpr float kInt8Limit = 127.0f;
constexpr float kInt16Limit = 32512.0f;
constexpr float kLargestFloat = 3.40282347e38f;  // (a function of <limits> would be a weak symbol)

// Prepared activations of one row and one block; index 0 and 1 of the sums are the halves, 2 is the whole.
struct Int8Block {
  std::int8_t q[32];
  float scale;
  std::int32_t neg_q_sum[3];  // -(sum of q)
  float neg_sum[3];           // -(scale * sum of q)
  float unused;
};
struct Int16Block {
  std::int8_t high[32];  // the value is 256 * high + low
  std::int8_t low[32];
  float scale;
  std::int32_t neg_q_sum[3];
  float neg_sum[3];
  float unused;
};
struct F32Block {
  float x[32];
  float neg_sum[3];  // -(sum of x)
  float unused;
};
struct Bf16Block {
  std::uint16_t x[32];
  float neg_sum[3];
  float unused;
};

// Some tiles of one weight, at most kMaxTiles. out: [num_tiles, num_rows, 16] is written, 64-byte aligned,
// with room for kMaxTiles tiles. Row r of x starts at x + r * row_stride (in blocks). num_rows is at most
// kPanelRows. A row's result does not depend on num_rows or on its place, nor a tile's on num_tiles.
using GroupedInt8Kernel = void (*)(const GroupedTile* tiles, int num_tiles, const Int8Block* x,
                                   std::int64_t row_stride, int num_rows, float* out);
using GroupedF32Kernel = void (*)(const GroupedTile* tiles, int num_tiles, const F32Block* x,
                                  std::int64_t row_stride, int num_rows, float* out);
using GroupedInt16Kernel = void (*)(const GroupedTile* tiles, int num_tiles, const Int16Block* x,
                                    std::int64_t row_stride, int num_rows, float* out);
struct DenseTiles {
  const void* first;
  std::int64_t stride_bytes;  // from tile to tile
  std::int64_t num_blocks;
};
using DenseF32Kernel = void (*)(const DenseTiles& tiles, int num_tiles, const F32Block* x,
                                std::int64_t row_stride, int num_rows, float* out);
using DenseBf16Kernel = void (*)(const DenseTiles& tiles, int num_tiles, const Bf16Block* x,
                                 std::int64_t row_stride, int num_rows, float* out);

// First index: 4, 5, 6, 8 bits; second: segments of 32, of 16.
struct GroupedInt8Table {
  const char* name;
  GroupedInt8Kernel kernels[4][2];
};
struct GroupedF32Table {
  const char* name;
  GroupedF32Kernel kernels[4][2];
};
struct GroupedInt16Table {
  const char* name;
  GroupedInt16Kernel kernels[4][2];
};
// Indexed by DType: f32, f16, bf16.
struct DenseF32Table {
  const char* name;
  DenseF32Kernel kernels[3];
};
// For weights stored as bf16.
struct DenseBf16Table {
  const char* name;
  DenseBf16Kernel kernel;
};
// x: [k]; out: [num_blocks], features from k on are zero.
struct ActivationTable {
  const char* name;
  void (*to_int8)(const float* x, std::int64_t k, std::int64_t num_blocks, Int8Block* out);
  void (*to_int16)(const float* x, std::int64_t k, std::int64_t num_blocks, Int16Block* out);
  void (*to_f32)(const float* x, std::int64_t k, std::int64_t num_blocks, F32Block* out);
  void (*to_bf16)(const float* x, std::int64_t k, std::int64_t num_blocks, Bf16Block* out);
};

extern const GroupedInt8Table kGroupedInt8Avx512;
extern const GroupedInt8Table kGroupedInt8Avx2;
extern const GroupedInt8Table kGroupedInt8Generic;
extern const GroupedF32Table kGroupedF32Avx512;
extern const GroupedF32Table kGroupedF32Avx2;
extern const GroupedF32Table kGroupedF32Generic;
extern const GroupedInt16Table kGroupedInt16Avx512;
extern const GroupedInt16Table kGroupedInt16Avx2;
extern const GroupedInt16Table kGroupedInt16Generic;
extern const DenseF32Table kDenseF32Avx512;
extern const DenseF32Table kDenseF32Avx2;
extern const DenseF32Table kDenseF32Generic;
extern const DenseBf16Table kDenseBf16Avx512Bf16;
extern const ActivationTable kActivationsAvx2;
extern const ActivationTable kActivationsGeneric;

}  // namespace quire::cpu::gemm
