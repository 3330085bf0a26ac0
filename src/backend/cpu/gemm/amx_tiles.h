// Purpose: the eight AMX tile registers of this thread; the same names as amx_tiles_emulated.h, so that the
// kernel body is written once. Include only from *_amx.cc. Everything has internal linkage.
//
// The constructor loads the configuration, the destructor releases it: once per kernel call, which takes
// microseconds at least, and loading takes some tens of cycles. Released, because a thread with live tiles
// has 8 KiB more to save at every switch and keeps its core from the deeper idle states.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/gemm/amx_tile_config.h"

namespace quire::cpu::gemm {
namespace {

// GCC 12's load intrinsics do not say that they read memory: without this the compiler may move the stores
// that fill a tile's memory behind the load.
inline __attribute__((always_inline)) void order_memory() {
  __asm__ volatile("" ::: "memory");
}

struct Tiles {
  // config: read as 64 bytes by the instruction, of which GCC 12's intrinsic declares 8; it is constant
  // initialized and never written.
  explicit Tiles(const TileConfig& config) {
    order_memory();
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  // The intrinsics take literal register numbers only.
#define QUIRE_WITH_TILE(kTile, call)   \
  if constexpr ((kTile) == 0) {        \
    call(0);                           \
  } else if constexpr ((kTile) == 1) { \
    call(1);                           \
  } else if constexpr ((kTile) == 2) { \
    call(2);                           \
  } else if constexpr ((kTile) == 3) { \
    call(3);                           \
  } else if constexpr ((kTile) == 4) { \
    call(4);                           \
  } else if constexpr ((kTile) == 5) { \
    call(5);                           \
  } else if constexpr ((kTile) == 6) { \
    call(6);                           \
  } else {                             \
    static_assert((kTile) == 7);       \
    call(7);                           \
  }
#define QUIRE_LOAD(tile) _tile_loadd(tile, from, stride)
#define QUIRE_LOAD_ONCE(tile) _tile_stream_loadd(tile, from, stride)
#define QUIRE_STORE(tile) _tile_stored(tile, to, stride)

  template <int kTile>
  __attribute__((always_inline)) void zero() {
    QUIRE_WITH_TILE(kTile, _tile_zero)
  }
  template <int kTile>
  __attribute__((always_inline)) void load(const void* from, std::int64_t stride) {
    order_memory();
    QUIRE_WITH_TILE(kTile, QUIRE_LOAD)
  }
  // From memory that is not read again soon: it need not displace what the first-level cache holds.
  template <int kTile>
  __attribute__((always_inline)) void load_once(const void* from, std::int64_t stride) {
    order_memory();
    QUIRE_WITH_TILE(kTile, QUIRE_LOAD_ONCE)
  }
  template <int kTile>
  __attribute__((always_inline)) void store(void* to, std::int64_t stride) {
    QUIRE_WITH_TILE(kTile, QUIRE_STORE)
    order_memory();
  }
  // Sum tile of weights kA (4 or 5) and activations kB (6 or 7) += their products.
  template <int kA, int kB>
  __attribute__((always_inline)) void dot() {
    if constexpr (kA == 4 && kB == 6) {
      _tile_dpbf16ps(0, 4, 6);
    } else if constexpr (kA == 4 && kB == 7) {
      _tile_dpbf16ps(1, 4, 7);
    } else if constexpr (kA == 5 && kB == 6) {
      _tile_dpbf16ps(2, 5, 6);
    } else {
      static_assert(kA == 5 && kB == 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }

#undef QUIRE_WITH_TILE
#undef QUIRE_LOAD
#undef QUIRE_LOAD_ONCE
#undef QUIRE_STORE
};

}  // namespace
}  // namespace quire::cpu::gemm
