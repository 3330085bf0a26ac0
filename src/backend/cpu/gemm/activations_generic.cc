// Purpose: rows of float32 activations -> what the linear kernels read, plain C++. The values are those of
// ref::quantize_row and f32_to_bf16 bit for bit, in every tier.
#include <cstring>

#include "backend/cpu/gemm/kernel_types.h"

namespace quire::cpu::gemm {
namespace {

std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
float from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Round to nearest even for |value| < 2^22: at this size a float32 has no fraction left.
float round_even(float value) {
  const float magic = 12582912.0f;  // 1.5 * 2^23
  return (value + magic) - magic;
}

std::uint32_t round_bf16_bits(float value) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits | 0x400000u) & 0xffff0000u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
}

// The features of one block, zeros after the end of the row.
void load_block(const float* x, std::int64_t k, std::int64_t block, float* values) {
  const std::int64_t begin = block * kBlockK;
  const std::int64_t count = k - begin < kBlockK ? k - begin : kBlockK;
  for (std::int64_t i = 0; i < kBlockK; ++i) values[i] = i < count ? x[begin + i] : 0.0f;
}

// Sums of the halves and of the whole: eight partial sums, then pairs; one order for every caller.
void store_neg_sums(const float* values, float* neg_sum) {
  for (int half = 0; half < 2; ++half) {
    float lane[8];
    for (int i = 0; i < 8; ++i) lane[i] = values[16 * half + i] + values[16 * half + 8 + i];
    for (int i = 0; i < 4; ++i) lane[i] += lane[i + 4];
    neg_sum[half] = -((lane[0] + lane[2]) + (lane[1] + lane[3]));
  }
  neg_sum[2] = neg_sum[0] + neg_sum[1];
}

// The largest magnitude, as bits: compared as integers, so that a NaN is the largest.
std::uint32_t largest_of(const float* values) {
  std::uint32_t largest = 0;
  for (int i = 0; i < kBlockK; ++i) {
    const std::uint32_t magnitude = bits_of(values[i]) & 0x7fffffffu;
    if (magnitude > largest) largest = magnitude;
  }
  return largest;
}

// values * limit / largest, rounded; sums of the halves. Returns the scale, largest / limit.
float quantize(const float* values, float limit, int* q, int* sums) {
  const std::uint32_t largest = largest_of(values);
  const float inverse = limit / from_bits(largest);
  const bool usable = inverse > 0.0f && inverse <= kLargestFloat;
  sums[0] = sums[1] = 0;
  for (int i = 0; i < kBlockK; ++i) {
    float scaled = usable ? values[i] * inverse : 0.0f;
    // The inverse was rounded, so a product may pass the limit.
    scaled = scaled > limit ? limit : scaled < -limit ? -limit : scaled;
    q[i] = static_cast<int>(round_even(scaled));
    sums[i / 16] += q[i];
  }
  return from_bits(largest) / limit;
}

template <typename Block>
void store_scale_and_sums(float scale, const int* sums, Block& block) {
  block.scale = scale;
  block.neg_q_sum[0] = -sums[0];
  block.neg_q_sum[1] = -sums[1];
  block.neg_q_sum[2] = -(sums[0] + sums[1]);
  for (int i = 0; i < 3; ++i) block.neg_sum[i] = scale * static_cast<float>(block.neg_q_sum[i]);
  block.unused = 0.0f;
}

void to_int8(const float* x, std::int64_t k, std::int64_t num_blocks, Int8Block* out) {
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    float values[kBlockK];
    load_block(x, k, b, values);
    int q[kBlockK];
    int sums[2];
    const float scale = quantize(values, kInt8Limit, q, sums);
    for (int i = 0; i < kBlockK; ++i) out[b].q[i] = static_cast<std::int8_t>(q[i]);
    store_scale_and_sums(scale, sums, out[b]);
  }
}

void to_int16(const float* x, std::int64_t k, std::int64_t num_blocks, Int16Block* out) {
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    float values[kBlockK];
    load_block(x, k, b, values);
    int q[kBlockK];
    int sums[2];
    const float scale = quantize(values, kInt16Limit, q, sums);
    for (int i = 0; i < kBlockK; ++i) {
      const int high = (q[i] + 128) >> 8;
      out[b].high[i] = static_cast<std::int8_t>(high);
      out[b].low[i] = static_cast<std::int8_t>(q[i] - 256 * high);
    }
    store_scale_and_sums(scale, sums, out[b]);
  }
}

void to_f32(const float* x, std::int64_t k, std::int64_t num_blocks, F32Block* out) {
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    load_block(x, k, b, out[b].x);
    store_neg_sums(out[b].x, out[b].neg_sum);
    out[b].unused = 0.0f;
  }
}

void to_bf16(const float* x, std::int64_t k, std::int64_t num_blocks, Bf16Block* out) {
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    float values[kBlockK];
    load_block(x, k, b, values);
    for (int i = 0; i < kBlockK; ++i) {
      const std::uint32_t rounded = round_bf16_bits(values[i]);
      values[i] = from_bits(rounded);
      out[b].x[i] = static_cast<std::uint16_t>(rounded >> 16);
    }
    store_neg_sums(values, out[b].neg_sum);
    out[b].unused = 0.0f;
  }
}

}  // namespace

constinit const ActivationTable kActivationsGeneric = {"generic", to_int8, to_int16, to_f32, to_bf16};

}  // namespace quire::cpu::gemm
