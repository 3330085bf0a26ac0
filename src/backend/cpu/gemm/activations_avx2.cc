// Purpose: rows of float32 activations -> what the linear kernels read, AVX2 (the AVX-512 tiers use it too:
// the work is small beside the kernels'). The same bits as activations_generic.cc.

#include <immintrin.h>

#include "backend/cpu/gemm/kernel_types.h"

namespace quire::cpu::gemm {
namespace {

// The features of one block as four vectors of eight, zeros after the end of the row.
inline void load_block(const float* x, std::int64_t k, std::int64_t block, __m256 (&values)[4]) {
  const float* from = x + block * kBlockK;
  const std::int64_t left = k - block * kBlockK;
  if (left >= kBlockK) {
    for (int i = 0; i < 4; ++i) values[i] = _mm256_loadu_ps(from + 8 * i);
    return;
  }
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (int i = 0; i < 4; ++i) {
    const __m256i wanted = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(left) - 8 * i), lane);
    values[i] = _mm256_maskload_ps(from + 8 * i, wanted);
  }
}

inline __m256i round_bf16_bits(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_and_si256(_mm256_blendv_epi8(rounded, quiet, is_nan),
                          _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
}

// -(sum of 16 values): eight partial sums, then pairs 4, 2, 1 apart, as in activations_generic.cc.
inline float neg_sum(__m256 a, __m256 b) {
  const __m256 eight = _mm256_add_ps(a, b);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return -_mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline void store_neg_sums(const __m256 (&values)[4], float* out) {
  out[0] = neg_sum(values[0], values[1]);
  out[1] = neg_sum(values[2], values[3]);
  out[2] = out[0] + out[1];
}

// The block as integers: values / scale rounded to even, scale = largest magnitude / limit, which is
// returned.
inline float quantize(const __m256 (&values)[4], float limit, __m256i (&q)[4]) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  // Compared as integers, so that a NaN is the largest.
  __m256i largest8 = _mm256_and_si256(_mm256_castps_si256(values[0]), magnitude);
  for (int i = 1; i < 4; ++i)
    largest8 = _mm256_max_epi32(largest8, _mm256_and_si256(_mm256_castps_si256(values[i]), magnitude));
  __m128i largest = _mm_max_epi32(_mm256_castsi256_si128(largest8), _mm256_extracti128_si256(largest8, 1));
  largest = _mm_max_epi32(largest, _mm_shuffle_epi32(largest, 0x4e));
  largest = _mm_max_epi32(largest, _mm_shuffle_epi32(largest, 0xb1));
  const float scale = _mm_cvtss_f32(_mm_castsi128_ps(largest)) / limit;
  const float inverse = limit / _mm_cvtss_f32(_mm_castsi128_ps(largest));
  const bool usable = inverse > 0.0f && inverse <= kLargestFloat;
  for (int i = 0; i < 4; ++i) {
    const __m256 scaled = _mm256_mul_ps(values[i], _mm256_set1_ps(inverse));
    const __m256 clamped =
        _mm256_max_ps(_mm256_min_ps(scaled, _mm256_set1_ps(limit)), _mm256_set1_ps(-limit));
    q[i] = usable ? _mm256_cvtps_epi32(clamped) : _mm256_setzero_si256();
  }
  return scale;
}

// packs works within 128-bit lanes; the permutation puts the four-byte runs back in order.
inline void store_bytes(__m256i words_low, __m256i words_high, std::int8_t* out) {
  const __m256i packed = _mm256_packs_epi16(words_low, words_high);
  _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(out)),
                      _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

inline int sum_of(__m256i a, __m256i b) {
  const __m256i eight = _mm256_add_epi32(a, b);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return _mm_cvtsi128_si32(four);
}

template <typename Block>
inline void store_scale_and_sums(float scale, const __m256i (&q)[4], Block& block) {
  const int low = sum_of(q[0], q[1]);
  const int high = sum_of(q[2], q[3]);
  block.scale = scale;
  block.neg_q_sum[0] = -low;
  block.neg_q_sum[1] = -high;
  block.neg_q_sum[2] = -(low + high);
  for (int i = 0; i < 3; ++i) block.neg_sum[i] = scale * static_cast<float>(block.neg_q_sum[i]);
  block.unused = 0.0f;
}

void to_int8(const float* x, std::int64_t k, std::int64_t num_blocks, Int8Block* out) {
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    __m256 values[4];
    __m256i q[4];
    load_block(x, k, b, values);
    const float scale = quantize(values, kInt8Limit, q);
    store_bytes(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]), out[b].q);
    store_scale_and_sums(scale, q, out[b]);
  }
}

void to_int16(const float* x, std::int64_t k, std::int64_t num_blocks, Int16Block* out) {
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    __m256 values[4];
    __m256i q[4];
    load_block(x, k, b, values);
    const float scale = quantize(values, kInt16Limit, q);
    const __m256i words[2] = {_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3])};
    __m256i high[2];
    __m256i low[2];
    for (int i = 0; i < 2; ++i) {
      high[i] = _mm256_srai_epi16(_mm256_add_epi16(words[i], _mm256_set1_epi16(128)), 8);
      low[i] = _mm256_sub_epi16(words[i], _mm256_slli_epi16(high[i], 8));
    }
    store_bytes(high[0], high[1], out[b].high);
    store_bytes(low[0], low[1], out[b].low);
    store_scale_and_sums(scale, q, out[b]);
  }
}

void to_f32(const float* x, std::int64_t k, std::int64_t num_blocks, F32Block* out) {
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    __m256 values[4];
    load_block(x, k, b, values);
    for (int i = 0; i < 4; ++i) _mm256_storeu_ps(out[b].x + 8 * i, values[i]);
    store_neg_sums(values, out[b].neg_sum);
    out[b].unused = 0.0f;
  }
}

void to_bf16(const float* x, std::int64_t k, std::int64_t num_blocks, Bf16Block* out) {
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    __m256 values[4];
    load_block(x, k, b, values);
    for (int i = 0; i < 4; ++i) {
      const __m256i bits = round_bf16_bits(values[i]);
      values[i] = _mm256_castsi256_ps(bits);
      const __m256i high = _mm256_srli_epi32(bits, 16);
      const __m128i half = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
      _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(out[b].x + 8 * i)), half);
    }
    store_neg_sums(values, out[b].neg_sum);
    out[b].unused = 0.0f;
  }
}

}  // namespace

constinit const ActivationTable kActivationsAvx2 = {"avx2", to_int8, to_int16, to_f32, to_bf16};

}  // namespace quire::cpu::gemm
