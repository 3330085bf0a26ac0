// Purpose: what the AMX kernel body needs beyond bytes_generic.h, in plain C++; see amx_vectors_avx512.h,
// whose results these are bit for bit. Everything has internal linkage.
#pragma once

#include <cmath>

#include "backend/cpu/gemm/bytes_generic.h"

namespace quire::cpu {
namespace {

inline void i_put(void* p, const Ints& x) {
  std::memcpy(p, &x, sizeof(x));
}
struct Words {
  std::uint16_t word[32];
};
inline Words words_of(const Ints& x) {
  Words words;
  std::memcpy(&words, &x, sizeof(words));
  return words;
}
inline Ints ints_of(const Words& words) {
  return i_load(&words);
}
template <int kBits>
inline Ints i_right_words(const Ints& x) {
  Words words = words_of(x);
  for (std::uint16_t& word : words.word) word = static_cast<std::uint16_t>(word >> kBits);
  return ints_of(words);
}
template <int kBits>
inline Ints i_left_words(const Ints& x) {
  Words words = words_of(x);
  for (std::uint16_t& word : words.word) word = static_cast<std::uint16_t>(word << kBits);
  return ints_of(words);
}
inline Ints i_select(const Ints& mask, Ints a, const Ints& b) {
  for (int i = 0; i < 4; ++i) a.part[i] = (mask.part[i] & a.part[i]) | (~mask.part[i] & b.part[i]);
  return a;
}
inline Ints i_look_up_words(const Ints& index, const Ints& table) {
  const Words at = words_of(index);
  const Words from = words_of(table);
  Words found;
  for (int i = 0; i < 32; ++i) found.word[i] = from.word[at.word[i] % 32];
  return ints_of(found);
}
inline Ints i_load_twice(const void* p) {
  Words words;
  std::memcpy(words.word, p, 32);
  std::memcpy(words.word + 16, p, 32);
  return ints_of(words);
}
inline Ints v_round_to_bf16(const Vec& high, const Vec& low) {
  Words words;
  for (int i = 0; i < 32; ++i) {
    const float x = i < 16 ? low[i] : high[i - 16];
    words.word[i] = f32_to_bf16(std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x);
  }
  return ints_of(words);
}
inline Vec v_fms_once(const Vec& a, const Vec& b, const Vec& c) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = ::fmaf(a[i], b[i], -c[i]);
  return v_load(lanes);
}
inline void transpose(const void* from, int num_rows, int num_lanes, float* to, std::int64_t to_stride) {
  const auto* bytes = static_cast<const char*>(from);
  for (int row = 0; row < num_rows; ++row)
    for (int lane = 0; lane < num_lanes; ++lane)
      std::memcpy(to + row * to_stride + lane, bytes + 64 * lane + 4 * row, 4);
}

}  // namespace
}  // namespace quire::cpu
