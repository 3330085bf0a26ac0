// Purpose: the runtime forms of a weight matrix [n, k] (n output features, k input features).
// In: canonical rows from quant/ (GroupedRows, FloatRows). Out: a PackedWeight that only its backend can
// read. Thread: immutable once packed. Out of scope: checkpoint formats (quant/), arithmetic (the kernels).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"

namespace quire {

// Canonical form of a group-quantized matrix, row-major, before packing:
//   w[r][c] = scale[r][c / group_size] * q[r][c] - min[r][c / group_size]
// exactly as the checkpoint's format defines it, in float32. q is unsigned (`bits` wide). A signed format has
// constant_zero = z, meaning min = z * scale, and then leaves mins empty.
struct GroupedRows {
  std::int64_t n = 0;
  std::int64_t k = 0;
  int bits = 4;         // 2..8; q < 2^bits
  int group_size = 32;  // divides k; 16, 32, 64, 128, ...
  int constant_zero = 0;
  std::vector<std::uint8_t> q;  // [n, k], one value per byte
  std::vector<float> scales;    // [n, k / group_size]
  std::vector<float> mins;      // [n, k / group_size], or empty
  // Two-level scales of the k-quants, if the format has them: scale = super_scale * scale_code,
  // min = super_min * min_code, one super pair per super_size values. Then a backend may keep the codes
  // instead.
  int super_size = 0;                       // 256, or 0
  std::vector<std::int8_t> scale_codes;     // [n, k / group_size]
  std::vector<std::uint8_t> min_codes;      // [n, k / group_size], or empty
  std::vector<std::uint16_t> super_scales;  // [n, k / super_size], f16 bits
  std::vector<std::uint16_t> super_mins;    // [n, k / super_size], f16 bits, or empty
};

// A float matrix, row-major; `storage` is what the checkpoint holds and what is kept (no precision is lost).
struct FloatRows {
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType storage = DType::kF32;
  const void* data = nullptr;  // [n, k] of storage
};

// What a packed weight is made of, for an engine file (model/engine_file.h): a few plain numbers and its
// arrays as they lie in memory. Backend::restore() makes the weight again, with the arrays where they then
// are.
struct PackedImage {
  struct Array {
    std::string name;
    std::span<const std::byte> bytes;
  };
  std::string kind;  // which class, e.g. "grouped"; "" = this weight cannot be stored
  std::vector<std::pair<std::string, std::int64_t>> numbers;
  std::string text;           // e.g. where it came from, for layout_name()
  std::vector<Array> arrays;  // 64-byte aligned

  // The number if it is there and in [low, high].
  std::optional<std::int64_t> number(std::string_view name, std::int64_t low, std::int64_t high) const;
  // An empty span if it is absent.
  std::span<const std::byte> array(std::string_view name) const;
};

// A weight as one backend keeps it.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  // Views of this weight's own memory.
  virtual PackedImage image() const { return {}; }
  virtual std::int64_t n() const = 0;
  virtual std::int64_t k() const = 0;
  virtual std::size_t num_bytes() const = 0;
  virtual bool is_quantized() const = 0;
  virtual std::string layout_name() const = 0;  // e.g. "int4 g32 f16-scale+min", for /v1/engine
};

}  // namespace quire
