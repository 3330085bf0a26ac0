#include "quant/ggml_format.h"

#include <cstring>

#include "base/dtype.h"
#include "quant/float_format.h"

namespace quire {
namespace {

std::uint16_t read_u16(const std::uint8_t* bytes) {
  return static_cast<std::uint16_t>(bytes[0] | (bytes[1] << 8));
}
float read_f16(const std::uint8_t* bytes) {
  return f16_to_f32(read_u16(bytes));
}

// Where one row's values go. Pointers start at the row's first value, group and super-block.
struct RowOut {
  std::uint8_t* q;
  float* scales;
  float* mins;               // null for constant-zero types
  std::int8_t* scale_codes;  // null for one-level types
  std::uint8_t* min_codes;
  std::uint16_t* super_scales;
  std::uint16_t* super_mins;
};

// Blocks of 32 values. d, m: f16. Nibble j of qs (low) is value j, high nibble is value j + 16; the fifth bit
// of value j is bit j of the little-endian word qh.
void unpack_q4_0(const std::uint8_t* block, std::int64_t num_blocks, const RowOut& out) {
  for (std::int64_t b = 0; b < num_blocks; ++b, block += 18) {  // d, qs[16]: w = d * (q - 8)
    out.scales[b] = read_f16(block);
    for (int j = 0; j < 16; ++j) {
      out.q[b * 32 + j] = block[2 + j] & 15;
      out.q[b * 32 + j + 16] = block[2 + j] >> 4;
    }
  }
}

void unpack_q4_1(const std::uint8_t* block, std::int64_t num_blocks, const RowOut& out) {
  for (std::int64_t b = 0; b < num_blocks; ++b, block += 20) {  // d, m, qs[16]: w = d * q + m
    out.scales[b] = read_f16(block);
    out.mins[b] = -read_f16(block + 2);
    for (int j = 0; j < 16; ++j) {
      out.q[b * 32 + j] = block[4 + j] & 15;
      out.q[b * 32 + j + 16] = block[4 + j] >> 4;
    }
  }
}

void unpack_q5_bits(const std::uint8_t* qh_bytes, const std::uint8_t* qs, std::uint8_t* q) {
  std::uint32_t qh;
  std::memcpy(&qh, qh_bytes, 4);
  for (int j = 0; j < 16; ++j) {
    q[j] = static_cast<std::uint8_t>((qs[j] & 15) | (((qh >> j) & 1u) << 4));
    q[j + 16] = static_cast<std::uint8_t>((qs[j] >> 4) | (((qh >> (j + 16)) & 1u) << 4));
  }
}

void unpack_q5_0(const std::uint8_t* block, std::int64_t num_blocks, const RowOut& out) {
  for (std::int64_t b = 0; b < num_blocks; ++b, block += 22) {  // d, qh[4], qs[16]: w = d * (q - 16)
    out.scales[b] = read_f16(block);
    unpack_q5_bits(block + 2, block + 6, out.q + b * 32);
  }
}

void unpack_q5_1(const std::uint8_t* block, std::int64_t num_blocks, const RowOut& out) {
  for (std::int64_t b = 0; b < num_blocks; ++b, block += 24) {  // d, m, qh[4], qs[16]: w = d * q + m
    out.scales[b] = read_f16(block);
    out.mins[b] = -read_f16(block + 2);
    unpack_q5_bits(block + 4, block + 8, out.q + b * 32);
  }
}

void unpack_q8_0(const std::uint8_t* block, std::int64_t num_blocks, const RowOut& out) {
  for (std::int64_t b = 0; b < num_blocks; ++b, block += 34) {  // d, int8 qs[32]: w = d * q
    out.scales[b] = read_f16(block);
    for (int j = 0; j < 32; ++j)
      out.q[b * 32 + j] = static_cast<std::uint8_t>(block[2 + j] ^ 0x80);  // q + 128
  }
}

// K-quants: super-blocks of 256 values with f16 super scales; group scales are small integers (codes).
void set_group(const RowOut& out, std::int64_t group, float d, int code) {
  out.scale_codes[group] = static_cast<std::int8_t>(code);
  out.scales[group] = d * static_cast<float>(code);
}
void set_group_min(const RowOut& out, std::int64_t group, float dmin, int code) {
  out.min_codes[group] = static_cast<std::uint8_t>(code);
  out.mins[group] = dmin * static_cast<float>(code);
}

// scales[16] (scale low nibble, min high), qs[64], d, dmin: 16 groups of 16, w = d * s * q - dmin * m.
void unpack_q2_k(const std::uint8_t* block, std::int64_t num_blocks, const RowOut& out) {
  for (std::int64_t b = 0; b < num_blocks; ++b, block += 84) {
    const std::uint8_t* qs = block + 16;
    const float d = read_f16(block + 80);
    const float dmin = read_f16(block + 82);
    out.super_scales[b] = read_u16(block + 80);
    out.super_mins[b] = read_u16(block + 82);
    for (int g = 0; g < 16; ++g) {
      set_group(out, b * 16 + g, d, block[g] & 15);
      set_group_min(out, b * 16 + g, dmin, block[g] >> 4);
    }
    for (int i = 0; i < 256; ++i) {  // value i: half i/128, bit pair (i/32)%4, byte i%32 of the half
      out.q[b * 256 + i] = (qs[(i / 128) * 32 + i % 32] >> (2 * ((i / 32) % 4))) & 3;
    }
  }
}

// hmask[32], qs[64], scales[12], d: 16 groups of 16 with 6-bit scales, w = d * (s - 32) * (q - 4).
// The scales' low nibbles lie in bytes 0..7, their high bit pairs in bytes 8..11.
void unpack_q3_k(const std::uint8_t* block, std::int64_t num_blocks, const RowOut& out) {
  for (std::int64_t b = 0; b < num_blocks; ++b, block += 110) {
    const std::uint8_t* hmask = block;
    const std::uint8_t* qs = block + 32;
    const std::uint8_t* scales = block + 96;
    const float d = read_f16(block + 108);
    out.super_scales[b] = read_u16(block + 108);
    for (int g = 0; g < 16; ++g) {
      const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
      const int high = (scales[8 + g % 4] >> (2 * (g / 4))) & 3;
      set_group(out, b * 16 + g, d, (low | (high << 4)) - 32);
    }
    for (int i = 0; i < 256; ++i) {
      const int low = (qs[(i / 128) * 32 + i % 32] >> (2 * ((i / 32) % 4))) & 3;
      const int high = (hmask[i % 32] >> (i / 32)) & 1;
      out.q[b * 256 + i] = static_cast<std::uint8_t>(low | (high << 2));
    }
  }
}

// The 6-bit scales and mins of Q4_K and Q5_K: bytes 0..3 scales 0..3, 4..7 mins 0..3 (six low bits each),
// bytes 8..11 the low nibbles of scales (low) and mins (high) 4..7, whose upper bit pairs are the upper bits
// of bytes 0..7.
void unpack_k4_scales(const std::uint8_t* scales, float d, float dmin, std::int64_t first_group,
                      const RowOut& out) {
  for (int g = 0; g < 8; ++g) {
    const int scale = g < 4 ? scales[g] & 63 : (scales[g + 4] & 15) | ((scales[g - 4] >> 6) << 4);
    const int min = g < 4 ? scales[g + 4] & 63 : (scales[g + 4] >> 4) | ((scales[g] >> 6) << 4);
    set_group(out, first_group + g, d, scale);
    set_group_min(out, first_group + g, dmin, min);
  }
}

// d, dmin, scales[12], qs[128]: 8 groups of 32; value i has nibble (i/32)%2 of byte (i/64)*32 + i%32.
void unpack_q4_k(const std::uint8_t* block, std::int64_t num_blocks, const RowOut& out) {
  for (std::int64_t b = 0; b < num_blocks; ++b, block += 144) {
    out.super_scales[b] = read_u16(block);
    out.super_mins[b] = read_u16(block + 2);
    unpack_k4_scales(block + 4, read_f16(block), read_f16(block + 2), b * 8, out);
    const std::uint8_t* qs = block + 16;
    for (int chunk = 0; chunk < 4; ++chunk) {
      for (int j = 0; j < 32; ++j) {
        out.q[b * 256 + chunk * 64 + j] = qs[chunk * 32 + j] & 15;
        out.q[b * 256 + chunk * 64 + 32 + j] = qs[chunk * 32 + j] >> 4;
      }
    }
  }
}

// d, dmin, scales[12], qh[32], qs[128]: as Q4_K, and bit i/32 of qh[i % 32] is the fifth bit of value i.
void unpack_q5_k(const std::uint8_t* block, std::int64_t num_blocks, const RowOut& out) {
  for (std::int64_t b = 0; b < num_blocks; ++b, block += 176) {
    out.super_scales[b] = read_u16(block);
    out.super_mins[b] = read_u16(block + 2);
    unpack_k4_scales(block + 4, read_f16(block), read_f16(block + 2), b * 8, out);
    const std::uint8_t* qh = block + 16;
    const std::uint8_t* qs = block + 48;
    for (int i = 0; i < 256; ++i) {
      const int low = (qs[(i / 64) * 32 + i % 32] >> (4 * ((i / 32) % 2))) & 15;
      out.q[b * 256 + i] = static_cast<std::uint8_t>(low | (((qh[i % 32] >> (i / 32)) & 1) << 4));
    }
  }
}

// ql[128], qh[64], int8 scales[16], d: 16 groups of 16, w = d * s * (q - 32). In each half of 128 values,
// value i has nibble (i/64) of ql[i % 64] and bit pair (i/32) of qh[i % 32].
void unpack_q6_k(const std::uint8_t* block, std::int64_t num_blocks, const RowOut& out) {
  for (std::int64_t b = 0; b < num_blocks; ++b, block += 210) {
    const float d = read_f16(block + 208);
    out.super_scales[b] = read_u16(block + 208);
    for (int g = 0; g < 16; ++g) set_group(out, b * 16 + g, d, static_cast<std::int8_t>(block[192 + g]));
    for (int half = 0; half < 2; ++half) {
      const std::uint8_t* ql = block + half * 64;
      const std::uint8_t* qh = block + 128 + half * 32;
      for (int i = 0; i < 128; ++i) {
        const int low = (ql[i % 64] >> (4 * (i / 64))) & 15;
        const int high = (qh[i % 32] >> (2 * (i / 32))) & 3;
        out.q[b * 256 + half * 128 + i] = static_cast<std::uint8_t>(low | (high << 4));
      }
    }
  }
}

struct BlockType {
  TensorType type;
  int bits;
  int group_size;
  int constant_zero;  // 0 = the type stores minima
  bool two_level;
  void (*unpack)(const std::uint8_t* block, std::int64_t num_blocks, const RowOut& out);
};

constexpr BlockType kBlockTypes[] = {
    {TensorType::kQ4_0, 4, 32, 8, false, unpack_q4_0},   {TensorType::kQ4_1, 4, 32, 0, false, unpack_q4_1},
    {TensorType::kQ5_0, 5, 32, 16, false, unpack_q5_0},  {TensorType::kQ5_1, 5, 32, 0, false, unpack_q5_1},
    {TensorType::kQ8_0, 8, 32, 128, false, unpack_q8_0}, {TensorType::kQ2_K, 2, 16, 0, true, unpack_q2_k},
    {TensorType::kQ3_K, 3, 16, 4, true, unpack_q3_k},    {TensorType::kQ4_K, 4, 32, 0, true, unpack_q4_k},
    {TensorType::kQ5_K, 5, 32, 0, true, unpack_q5_k},    {TensorType::kQ6_K, 6, 16, 32, true, unpack_q6_k},
};

const BlockType* find_block_type(TensorType type) {
  for (const BlockType& candidate : kBlockTypes) {
    if (candidate.type == type) return &candidate;
  }
  return nullptr;
}

class GgmlFormat final : public Format {
 public:
  const char* name() const override { return "GGUF blocks (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K)"; }

  bool recognises(const TensorSource& source, const std::string& layer) const override {
    const TensorView* tensor = source.find(layer + ".weight");
    return tensor != nullptr && is_ggml_block_type(tensor->type);
  }

  Result<std::unique_ptr<PackedWeight>> load(const TensorSource& source, const LayerRequest& request,
                                             Backend& backend) const override {
    const TensorView& tensor = *source.find(request.name + ".weight");
    QUIRE_RETURN_IF_ERROR(check_matrix_shape(tensor, request.n, request.k));
    const GroupedRows rows =
        unpack_ggml_rows(tensor, request.n, request.k, request.permutation, &backend.pool());
    if (!request.hold_as.has_value()) return backend.pack(rows);
    return pack_rounded(request.n, request.k, *request.hold_as, backend,
                        [&](std::int64_t row, float* out) { dequantize_row(rows, row, out); });
  }
};

}  // namespace

const Format& ggml_format() {
  static const GgmlFormat format;
  return format;
}

bool is_ggml_block_type(TensorType type) {
  return find_block_type(type) != nullptr;
}

void dequantize_row(const GroupedRows& rows, std::int64_t row, float* out) {
  const std::int64_t groups = rows.k / rows.group_size;
  for (std::int64_t c = 0; c < rows.k; ++c) {
    const auto group = static_cast<std::size_t>(row * groups + c / rows.group_size);
    const int q = rows.q[static_cast<std::size_t>(row * rows.k + c)];
    out[c] = rows.mins.empty() ? rows.scales[group] * static_cast<float>(q - rows.constant_zero)
                               : rows.scales[group] * static_cast<float>(q) - rows.mins[group];
  }
}

GroupedRows unpack_ggml_rows(const TensorView& tensor, std::int64_t n, std::int64_t k,
                             std::span<const std::int32_t> permutation, ThreadPool* pool) {
  const BlockType* type = find_block_type(tensor.type);
  QUIRE_CHECK(type != nullptr) << tensor.name;
  const TensorTypeInfo& info = tensor_type_info(tensor.type);
  QUIRE_CHECK_EQ(k % info.block_values, 0) << tensor.name;
  const std::int64_t blocks = k / info.block_values;
  const std::int64_t groups = k / type->group_size;
  const auto row_bytes = static_cast<std::size_t>(blocks * info.block_bytes);
  QUIRE_CHECK_EQ(tensor.data.size(), static_cast<std::size_t>(n) * row_bytes) << tensor.name;

  GroupedRows rows;
  rows.n = n;
  rows.k = k;
  rows.bits = type->bits;
  rows.group_size = type->group_size;
  rows.constant_zero = type->constant_zero;
  const bool has_mins = type->constant_zero == 0;
  const auto num_groups = static_cast<std::size_t>(n * groups);
  const auto num_supers = static_cast<std::size_t>(n * blocks);
  rows.q.resize(static_cast<std::size_t>(n * k));
  rows.scales.resize(num_groups);
  if (has_mins) rows.mins.resize(num_groups);
  if (type->two_level) {
    rows.super_size = static_cast<int>(info.block_values);
    rows.scale_codes.resize(num_groups);
    rows.super_scales.resize(num_supers);
    if (has_mins) {
      rows.min_codes.resize(num_groups);
      rows.super_mins.resize(num_supers);
    }
  }

  auto unpack_row = [&](std::int64_t row) {
    const std::int64_t from = permutation.empty() ? row : permutation[static_cast<std::size_t>(row)];
    const auto* block = reinterpret_cast<const std::uint8_t*>(tensor.data.data()) +
                        static_cast<std::size_t>(from) * row_bytes;
    RowOut out{};
    out.q = rows.q.data() + row * k;
    out.scales = rows.scales.data() + row * groups;
    if (has_mins) out.mins = rows.mins.data() + row * groups;
    if (type->two_level) {
      out.scale_codes = rows.scale_codes.data() + row * groups;
      out.super_scales = rows.super_scales.data() + row * blocks;
      if (has_mins) {
        out.min_codes = rows.min_codes.data() + row * groups;
        out.super_mins = rows.super_mins.data() + row * blocks;
      }
    }
    type->unpack(block, blocks, out);
  };
  if (pool != nullptr) {
    pool->run(n, unpack_row);
  } else {
    for (std::int64_t row = 0; row < n; ++row) unpack_row(row);
  }
  return rows;
}

}  // namespace quire
