// Purpose: linear layers on AMX tiles. Written on Tiles (amx_tiles.h or amx_tiles_emulated.h) and on the
// vector names of amx_vectors_*.h; a kernel file includes one of each before this. Internal linkage only.
// amx.h says what is computed and how weights and activations lie in memory.
//
// A step is one block of 32 features of a pair: two tiles of weights times one or two tiles of activations,
// four tiles of sums. The weights of a step are unpacked kLead steps before their products: a tile cannot be
// loaded from stores that have not reached the cache, and 6 KiB of later stores, more micro-operations than
// the processor looks ahead, lie in between. It also means that the vector ports unpack while the tile unit
// multiplies.
//
// Up to 32 rows all features pass in one go. With more rows, the weights of a stretch of kStretch steps stay
// in the first-level cache (20 KiB of 48) while all rows pass over them, 32 at a time: 20 KiB of activations
// from the second level per 640 cycles of products, and sums are kept in memory between stretches.
#pragma once

#include "backend/cpu/gemm/amx_unpack.h"

namespace quire::cpu::gemm {
namespace {

constexpr int kLead = 3;
constexpr int kStretch = 10;
constexpr int kRing = kStretch + kLead;
constexpr int kSumFloats = 16 * 16;

// bf16 weights are tiles already: nothing to unpack, only to fetch in time.
class NoUnpacker {
 public:
  static constexpr bool kDirect = true;
  explicit NoUnpacker(const AmxWeights& weights) : data_(weights.data), num_blocks_(weights.num_blocks) {}
  void seek(std::int64_t pair, std::int64_t block) { next_ = at(pair, block); }
  __attribute__((always_inline)) void step(std::uint8_t*) {
    for (int line = 0; line < 2048; line += 64) prefetch(next_ + kFetchAhead + line);
    next_ += 2048;
  }
  const std::uint8_t* at(std::int64_t pair, std::int64_t block) const {
    return data_ + (pair * num_blocks_ + block) * 2048;
  }

 private:
  const std::uint8_t* const data_;
  const std::int64_t num_blocks_;
  const std::uint8_t* next_ = nullptr;
};

template <typename Unpacker>
class TiledLayer {
 public:
  TiledLayer(const AmxWeights& weights, std::int64_t first_pair, std::int64_t num_pairs,
             const std::uint16_t* x, int width, int num_rows, float* scratch, float* out,
             std::int64_t out_stride)
      : num_blocks_(weights.num_blocks),
        first_pair_(first_pair),
        num_pairs_(num_pairs),
        x_(reinterpret_cast<const std::uint8_t*>(x)),
        num_rows_(num_rows),
        width_(width),
        num_panels_(static_cast<int>(amx_num_panels(num_rows))),
        panel_bytes_(amx_panel_bytes(width, weights.num_blocks)),
        scratch_(scratch),
        out_(out),
        out_stride_(out_stride),
        unpacker_(weights),
        tiles_(kTileConfigs[__builtin_ctz(static_cast<unsigned>(width_))]) {}

  void run() {
    const std::int64_t walk = amx_walk_blocks(num_rows_, num_blocks_);
    const bool one_walk = walk == num_blocks_;
    const std::int64_t sums_per_pair = static_cast<std::int64_t>(num_panels_) * 2 * kSumFloats;
    for (std::int64_t begin = 0; begin < num_blocks_; begin += walk) {
      const std::int64_t end = begin + walk < num_blocks_ ? begin + walk : num_blocks_;
      start_unpacking(begin, end);
      for (std::int64_t pair = 0; pair < num_pairs_; ++pair)
        run_pair(pair, begin, end, scratch_ + (one_walk ? 0 : pair * sums_per_pair));
    }
  }

 private:
  // Where the unpacker stands: it goes through pairs and blocks in the order of the products, kLead steps
  // ahead.
  void start_unpacking(std::int64_t begin, std::int64_t end) {
    unpack_begin_ = begin;
    unpack_end_ = end;
    unpack_block_ = begin;
    unpack_pair_ = 0;
    unpack_slot_ = 0;
    use_slot_ = 0;
    unpacker_.seek(first_pair_, begin);
    for (int i = 0; i < kLead; ++i) unpack_step();
  }
  __attribute__((always_inline)) void unpack_step() {
    if (unpack_pair_ == num_pairs_) return;
    if constexpr (Unpacker::kDirect) {
      unpacker_.step(nullptr);
    } else {
      unpacker_.step(ring_[unpack_slot_]);
    }
    unpack_slot_ = unpack_slot_ + 1 == kRing ? 0 : unpack_slot_ + 1;
    if (++unpack_block_ < unpack_end_) return;
    unpack_block_ = unpack_begin_;
    if (++unpack_pair_ < num_pairs_) unpacker_.seek(first_pair_ + unpack_pair_, unpack_begin_);
  }

  void run_pair(std::int64_t pair, std::int64_t begin, std::int64_t end, float* sums) {
    const std::int64_t step = num_panels_ <= 2 ? end - begin : kStretch;
    for (std::int64_t from = begin; from < end; from += step) {
      const std::int64_t to = from + step < end ? from + step : end;
      for (int panel = 0; panel < num_panels_; panel += 2) {
        if (panel + 1 < num_panels_) {
          run_panels<2>(pair, panel, from, to, sums + panel * 2 * kSumFloats);
        } else {
          run_panels<1>(pair, panel, from, to, sums + panel * 2 * kSumFloats);
        }
      }
      use_slot_ = static_cast<int>((use_slot_ + (to - from)) % kRing);
    }
  }

  // sums: [kPanels][2 tiles][16][16]
  template <int kPanels>
  __attribute__((always_inline)) void run_panels(std::int64_t pair, int panel, std::int64_t from,
                                                 std::int64_t to, float* sums) {
    load_sums<kPanels>(from, sums);
    if (panel == 0) {
      if (num_panels_ <= 2) {
        multiply<kPanels, true, false>(pair, panel, from, to);
      } else {
        multiply<kPanels, true, true>(pair, panel, from, to);
      }
    } else {
      multiply<kPanels, false, true>(pair, panel, from, to);
    }
    if (to < num_blocks_) {
      store_sums<kPanels>(sums);
    } else {
      finish<kPanels>(pair, panel);
    }
  }

  // kUnpack: also unpack as many steps, kLead ahead. kOnce: these activations are read once per stretch.
  template <int kPanels, bool kUnpack, bool kOnce>
  __attribute__((always_inline)) void multiply(std::int64_t pair, int panel, std::int64_t from,
                                               std::int64_t to) {
    const std::int64_t stride = 4 * width_;
    const std::int64_t tile_bytes = 16 * stride;
    const std::uint8_t* x = x_ + panel * panel_bytes_ + from * tile_bytes;
    int slot = use_slot_;
    for (std::int64_t block = from; block < to; ++block) {
      if constexpr (kUnpack) unpack_step();
      const std::uint8_t* w;
      if constexpr (Unpacker::kDirect) {
        w = unpacker_.at(first_pair_ + pair, block);
      } else {
        w = ring_[slot];
      }
      tiles_.template load<4>(w, 64);
      load_activations<6, kOnce>(x, stride);
      tiles_.template dot<4, 6>();
      if constexpr (kPanels == 2) {
        load_activations<7, kOnce>(x + panel_bytes_, stride);
        tiles_.template dot<4, 7>();
      }
      tiles_.template load<5>(w + 1024, 64);
      tiles_.template dot<5, 6>();
      if constexpr (kPanels == 2) tiles_.template dot<5, 7>();
      slot = slot + 1 == kRing ? 0 : slot + 1;
      x += tile_bytes;
    }
  }
  template <int kTile, bool kOnce>
  __attribute__((always_inline)) void load_activations(const std::uint8_t* x, std::int64_t stride) {
    if constexpr (kOnce) {
      tiles_.template load_once<kTile>(x, stride);
    } else {
      tiles_.template load<kTile>(x, stride);
    }
  }

  template <int kPanels>
  __attribute__((always_inline)) void load_sums(std::int64_t from, const float* sums) {
    if (from == 0) {
      tiles_.template zero<0>();
      tiles_.template zero<2>();
      if constexpr (kPanels == 2) {
        tiles_.template zero<1>();
        tiles_.template zero<3>();
      }
      return;
    }
    tiles_.template load<0>(sums, 64);
    tiles_.template load<2>(sums + kSumFloats, 64);
    if constexpr (kPanels == 2) {
      tiles_.template load<1>(sums + 2 * kSumFloats, 64);
      tiles_.template load<3>(sums + 3 * kSumFloats, 64);
    }
  }
  template <int kPanels>
  __attribute__((always_inline)) void store_sums(float* sums) {
    tiles_.template store<0>(sums, 64);
    tiles_.template store<2>(sums + kSumFloats, 64);
    if constexpr (kPanels == 2) {
      tiles_.template store<1>(sums + 2 * kSumFloats, 64);
      tiles_.template store<3>(sums + 3 * kSumFloats, 64);
    }
  }
  // Sums have a row per output column; the result has a row per row of activations.
  template <int kPanels>
  __attribute__((always_inline)) void finish(std::int64_t pair, int panel) {
    store_sums<kPanels>(finished_);
    for (int p = 0; p < kPanels; ++p) {
      const int first = (panel + p) * kAmxPanelRows;
      const int rows = num_rows_ - first < kAmxPanelRows ? num_rows_ - first : kAmxPanelRows;
      float* to = out_ + first * out_stride_ + pair * kAmxPairCols;
      transpose(finished_ + (2 * p) * kSumFloats, rows, kTileCols, to, out_stride_);
      transpose(finished_ + (2 * p + 1) * kSumFloats, rows, kTileCols, to + kTileCols, out_stride_);
    }
  }

  const std::int64_t num_blocks_;
  const std::int64_t first_pair_;
  const std::int64_t num_pairs_;
  const std::uint8_t* const x_;
  const int num_rows_;
  const int width_;
  const int num_panels_;
  const std::int64_t panel_bytes_;
  float* const scratch_;
  float* const out_;
  const std::int64_t out_stride_;

  Unpacker unpacker_;
  std::int64_t unpack_begin_ = 0;
  std::int64_t unpack_end_ = 0;
  std::int64_t unpack_block_ = 0;
  std::int64_t unpack_pair_ = 0;
  int unpack_slot_ = 0;
  int use_slot_ = 0;  // of the first step of this stretch

  Tiles tiles_;
  alignas(64) std::uint8_t ring_[Unpacker::kDirect ? 1 : kRing][2048];
  alignas(64) float finished_[4 * kSumFloats];
};

template <typename Unpacker>
void run_linear(const AmxWeights& weights, std::int64_t first_pair, std::int64_t num_pairs,
                const std::uint16_t* x, int width, int num_rows, float* scratch, float* out,
                std::int64_t out_stride) {
  TiledLayer<Unpacker>(weights, first_pair, num_pairs, x, width, num_rows, scratch, out, out_stride).run();
}

void run_any(const AmxWeights& weights, std::int64_t first_pair, std::int64_t num_pairs,
             const std::uint16_t* x, int width, int num_rows, float* scratch, float* out,
             std::int64_t out_stride) {
  constexpr decltype(&run_any) kRun[kNumAmxLayouts] = {
      run_linear<NoUnpacker>,
      run_linear<TableUnpacker<4, false>>,
      run_linear<TableUnpacker<4, true>>,
      run_linear<TableUnpacker<5, false>>,
      run_linear<ArithmeticUnpacker<6, true>>,
      run_linear<ArithmeticUnpacker<8, true>>,
      run_linear<ArithmeticUnpacker<8, false>>,
  };
  kRun[weights.layout](weights, first_pair, num_pairs, x, width, num_rows, scratch, out, out_stride);
}

// Rounded rows are transposed by pairs of features.
void pack_panel(const float* x, std::int64_t row_stride, int num_rows, int width, std::int64_t k,
                std::int64_t num_blocks, std::uint16_t* out) {
  alignas(64) std::uint8_t rows[16][64] = {};
  auto* to = static_cast<float*>(static_cast<void*>(out));
  for (std::int64_t block = 0; block < num_blocks; ++block) {
    const std::int64_t from = block * kBlockK;
    const std::int64_t left = k - from;
    for (int r = 0; r < num_rows; ++r) {
      const float* at = x + r * row_stride + from;
      const Vec low = left >= 16 ? v_load(at) : v_load_first(at, left);
      const Vec high = left >= 32 ? v_load(at + 16) : left > 16 ? v_load_first(at + 16, left - 16) : v_zero();
      i_put(rows[r], v_round_to_bf16(high, low));
    }
    if (width == 1) {
      i_put(to + 16 * block, i_load(rows[0]));
      continue;
    }
    transpose(rows, 16, width, to + block * 16 * width, width);
  }
}

}  // namespace
}  // namespace quire::cpu::gemm
