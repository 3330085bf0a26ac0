#include "backend/cpu/kv_cache.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cpu/test_tiers.h"
#include "base/dtype.h"

namespace quire::cpu {
namespace {

using testing::HasSubstr;

float element(const std::byte* area, std::int64_t index, DType dtype) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, area + index * 4, 4);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, area + index * 2, 2);
  return dtype == DType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
}

// Reads one key or value back by the layout that kv_cache.h describes.
float key_at(const CpuKvCache& cache, std::int64_t layer, std::int64_t slot, std::int64_t head,
             std::int64_t d) {
  const KvSpec& spec = cache.spec();
  const std::int64_t offset = slot % spec.block_size;
  const std::int64_t width = cache.tile_width();
  const std::int64_t index = (offset / width * spec.head_dim + d) * width + offset % width;
  return element(cache.area(layer, slot / spec.block_size, head), index, spec.dtype);
}
float value_at(const CpuKvCache& cache, std::int64_t layer, std::int64_t slot, std::int64_t head,
               std::int64_t d) {
  const KvSpec& spec = cache.spec();
  return element(cache.area(layer, slot / spec.block_size, head) + cache.value_offset_bytes(),
                 slot % spec.block_size * spec.head_dim + d, spec.dtype);
}
float stored(float value, DType dtype) {
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(std::fmin(std::fmax(value, -65504.0f), 65504.0f)));
  return dtype == DType::kBf16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

class KvCacheTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { QUIRE_SKIP_UNLESS_TIER_RUNS(GetParam()); }
  ThreadPool pool_{2};
};
INSTANTIATE_TEST_SUITE_P(Tiers, KvCacheTest, testing::ValuesIn(kAllTiers), tier_test_name);

TEST_P(KvCacheTest, StoresEachRowInItsSlotAndTouchesNoOther) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    for (const std::int64_t block_size : {1, 3, 4, 16, 24, 32}) {
      for (const std::int64_t head_dim : {8, 33, 64}) {
        const KvSpec spec = {2, 3, head_dim, block_size, 200 / block_size, dtype};
        auto cache = std::move(CpuKvCache::make(spec).value());
        const std::int64_t num_slots = spec.block_size * spec.num_blocks;
        // Every second slot, in a scattered order, in one call of 90 rows (two parts).
        std::vector<std::int32_t> slots;
        for (std::int64_t t = 0; t < 90; ++t) slots.push_back(static_cast<std::int32_t>(t * 34 % 180));
        const auto k_of = [](std::int64_t t, std::int64_t i) {
          return static_cast<float>(t + 1) + 0.00137f * static_cast<float>(i);
        };
        const auto v_of = [](std::int64_t t, std::int64_t i) {
          return -7000.0f * static_cast<float>(t + 1) - static_cast<float>(i);
        };
        std::vector<float> k;
        std::vector<float> v;
        for (std::int64_t t = 0; t < 90; ++t) {
          for (std::int64_t i = 0; i < 3 * head_dim; ++i) {
            k.push_back(k_of(t, i));
            v.push_back(v_of(t, i));
          }
        }
        store_kv(GetParam(), pool_, *cache, 1, k.data(), v.data(), 90, slots.data());
        std::vector<std::int64_t> row_of(static_cast<std::size_t>(num_slots), -1);
        for (std::size_t t = 0; t < slots.size(); ++t)
          row_of[static_cast<std::size_t>(slots[t])] = static_cast<std::int64_t>(t);
        for (std::int64_t slot = 0; slot < num_slots; ++slot) {
          const std::int64_t t = row_of[static_cast<std::size_t>(slot)];
          for (std::int64_t head = 0; head < 3; ++head) {
            for (std::int64_t d = 0; d < head_dim; ++d) {
              const std::int64_t i = head * head_dim + d;
              ASSERT_EQ(key_at(*cache, 1, slot, head, d), t < 0 ? 0.0f : stored(k_of(t, i), dtype));
              ASSERT_EQ(value_at(*cache, 1, slot, head, d), t < 0 ? 0.0f : stored(v_of(t, i), dtype));
              ASSERT_EQ(key_at(*cache, 0, slot, head, d), 0.0f);
              ASSERT_EQ(value_at(*cache, 0, slot, head, d), 0.0f);
            }
          }
        }
      }
    }
  }
}

#if defined(__x86_64__)
// The layout that kv_cache.h describes, read back: errors of half a step, the bytes of other slots untouched.
TEST(KvCache, HoldsIntegersForAKernelThatComputesInThem) {
  QUIRE_SKIP_UNLESS_TIER_RUNS(Isa::kAvx512);
  ThreadPool pool(2);
  for (const std::int64_t block_size : {1, 3, 4, 16, 24, 32}) {
    for (const std::int64_t head_dim : {8, 33, 64}) {
      const KvSpec spec = {2, 3, head_dim, block_size, 200 / block_size, DType::kF16};
      auto cache = std::move(CpuKvCache::make(spec, &kAttentionInt16Avx512).value());
      ASSERT_TRUE(cache->holds_integers());
      ASSERT_EQ(cache->num_bytes(), CpuKvCache::block_bytes(spec, &kAttentionInt16Avx512) *
                                        static_cast<std::size_t>(spec.num_blocks));
      std::memset(cache->area(0, 0, 0), 0x7f, cache->num_bytes());
      std::vector<std::int32_t> slots;
      for (std::int64_t t = 0; t < 90; ++t) slots.push_back(static_cast<std::int32_t>(t * 34 % 180));
      std::vector<float> k;
      std::vector<float> v;
      for (std::int64_t i = 0; i < 90 * 3 * head_dim; ++i) {
        k.push_back(static_cast<float>(i * 7919 % 2001 - 1000) * 0.01f);
        v.push_back(static_cast<float>(i * 104729 % 2001 - 1000) * 3.0f);
      }
      store_kv(Isa::kAvx512, pool, *cache, 1, k.data(), v.data(), 90, slots.data());
      const std::int64_t padded = (head_dim + 15) / 16 * 16;
      const std::int64_t width = cache->tile_width();
      std::vector<bool> used(static_cast<std::size_t>(block_size * spec.num_blocks), false);
      for (std::size_t t = 0; t < slots.size(); ++t) {
        used[static_cast<std::size_t>(slots[t])] = true;
        const std::int64_t offset = slots[t] % block_size;
        for (std::int64_t head = 0; head < 3; ++head) {
          const std::byte* area = cache->area(1, slots[t] / block_size, head);
          const auto* keys = reinterpret_cast<const std::int16_t*>(area);
          const auto* values = reinterpret_cast<const std::int16_t*>(area + cache->value_offset_bytes());
          const auto* scales = reinterpret_cast<const float*>(area + cache->scale_offset_bytes());
          const float key_step = scales[offset];
          const float value_step = std::exp2(scales[block_size + offset]);
          const float* want_k = k.data() + (static_cast<std::int64_t>(t) * 3 + head) * head_dim;
          const float* want_v = v.data() + (static_cast<std::int64_t>(t) * 3 + head) * head_dim;
          double square = 0;
          float largest = 0;
          for (std::int64_t d = 0; d < head_dim; ++d) {
            square += static_cast<double>(want_k[d]) * static_cast<double>(want_k[d]);
            largest = std::fmax(largest, std::abs(want_v[d]));
          }
          ASSERT_NEAR(key_step, std::sqrt(square) / 32700, 1e-5 * static_cast<double>(key_step));
          ASSERT_LE(largest, 8192 * value_step);
          ASSERT_GE(largest, 4096 * value_step);
          for (std::int64_t d = 0; d < head_dim; ++d) {
            const std::int64_t key_at =
                ((offset / width * ((head_dim + 1) / 2) + d / 2) * width + offset % width) * 2 + d % 2;
            const std::int64_t value_at =
                width % 2 == 0 ? (offset / 2 * padded + d) * 2 + offset % 2 : offset * padded + d;
            ASSERT_LE(std::abs(static_cast<float>(keys[key_at]) * key_step - want_k[d]), 0.501f * key_step);
            ASSERT_LE(std::abs(static_cast<float>(values[value_at]) * value_step - want_v[d]),
                      0.501f * value_step);
          }
        }
      }
      for (std::int64_t slot = 0; slot < block_size * spec.num_blocks; ++slot) {
        if (used[static_cast<std::size_t>(slot)]) continue;
        const std::byte* area = cache->area(1, slot / block_size, 2);
        const std::int64_t offset = slot % block_size;
        for (std::int64_t i = 0; i < 2; ++i) {
          const std::byte* scale = area + cache->scale_offset_bytes() + (i * block_size + offset) * 4;
          ASSERT_EQ(static_cast<int>(*scale), 0x7f);
        }
      }
    }
  }
}

TEST(KvCache, BrokenVectorsShowInTheScalesOfIntegers) {
  QUIRE_SKIP_UNLESS_TIER_RUNS(Isa::kAvx512);
  ThreadPool pool(1);
  auto cache = std::move(CpuKvCache::make({1, 1, 16, 16, 1, DType::kF16}, &kAttentionInt16Avx512).value());
  std::vector<float> rows(3 * 16, 0.0f);  // nothing, a NaN, an infinity
  rows[16 + 5] = NAN;
  rows[32 + 7] = -std::numeric_limits<float>::infinity();
  const std::int32_t slots[] = {0, 1, 2};
  store_kv(Isa::kAvx512, pool, *cache, 0, rows.data(), rows.data(), 3, slots);
  const auto* scales = reinterpret_cast<const float*>(cache->area(0, 0, 0) + cache->scale_offset_bytes());
  EXPECT_EQ(scales[0], 0.0f);
  EXPECT_TRUE(std::isfinite(scales[16]));
  EXPECT_TRUE(std::isnan(scales[1]));
  EXPECT_TRUE(std::isnan(scales[16 + 1]));
  EXPECT_FALSE(std::isfinite(scales[2]));
  EXPECT_TRUE(std::isnan(scales[16 + 2]));
}
#endif

TEST_P(KvCacheTest, Float16SaturatesAndKeepsNaN) {
  auto cache = std::move(CpuKvCache::make({1, 1, 4, 16, 1, DType::kF16}).value());
  const float k[] = {1e6f, -1e6f, std::numeric_limits<float>::infinity(), NAN};
  const std::int32_t slot = 3;
  store_kv(GetParam(), pool_, *cache, 0, k, k, 1, &slot);
  EXPECT_EQ(key_at(*cache, 0, 3, 0, 0), 65504.0f);
  EXPECT_EQ(value_at(*cache, 0, 3, 0, 1), -65504.0f);
  EXPECT_EQ(key_at(*cache, 0, 3, 0, 2), 65504.0f);
  EXPECT_TRUE(std::isnan(key_at(*cache, 0, 3, 0, 3)));
  EXPECT_TRUE(std::isnan(value_at(*cache, 0, 3, 0, 3)));
}

TEST(KvCache, CopiesABlockOverAllLayersAndHeads) {
  ThreadPool pool(2);
  const KvSpec spec = {3, 2, 16, 4, 5, DType::kF32};
  auto cache = std::move(CpuKvCache::make(spec).value());
  std::vector<float> rows;
  std::vector<std::int32_t> slots;
  for (std::int64_t slot = 0; slot < 20; ++slot) slots.push_back(static_cast<std::int32_t>(slot));
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    rows.clear();
    for (int i = 0; i < 20 * 2 * 16; ++i) rows.push_back(static_cast<float>(1000 * layer + i));
    store_kv(Isa::kGeneric, pool, *cache, layer, rows.data(), rows.data(), 20, slots.data());
  }
  copy_block(pool, *cache, 3, 1);
  copy_block(pool, *cache, 2, 2);
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    for (std::int64_t slot = 0; slot < 20; ++slot) {
      const std::int64_t from = slot / 4 == 1 ? slot + 8 : slot;
      for (std::int64_t head = 0; head < 2; ++head) {
        for (std::int64_t d = 0; d < 16; ++d) {
          const auto want = static_cast<float>(1000 * layer + (from * 2 + head) * 16 + d);
          ASSERT_EQ(key_at(*cache, layer, slot, head, d), want);
          ASSERT_EQ(value_at(*cache, layer, slot, head, d), want);
        }
      }
    }
  }
}

TEST(KvCache, AreasHaveTheSizeThatBlockBytesPromises) {
  const KvSpec spec = {2, 3, 40, 24, 5, DType::kF16};
  auto cache = std::move(CpuKvCache::make(spec).value());
  EXPECT_EQ(cache->tile_width(), 8);
  EXPECT_EQ(cache->block_stride_bytes() * 2, spec.block_bytes());
  EXPECT_EQ(cache->area(1, 0, 0) - cache->area(0, 0, 0),
            static_cast<std::ptrdiff_t>(cache->block_stride_bytes() * 5));
  EXPECT_EQ(cache->area(1, 4, 2) - cache->area(1, 4, 1),
            static_cast<std::ptrdiff_t>(cache->value_offset_bytes() * 2));
}

TEST(KvCache, RefusesImpossibleSizes) {
  const KvSpec good = {1, 1, 64, 16, 1, DType::kF32};
  EXPECT_TRUE(CpuKvCache::make(good).ok());
  KvSpec spec = good;
  spec.num_blocks = 0;
  EXPECT_THAT(CpuKvCache::make(spec).error().message, HasSubstr("0 blocks"));
  spec = good;
  spec.head_dim = -64;
  EXPECT_THAT(CpuKvCache::make(spec).error().message, HasSubstr("-64 values per head"));
  spec = good;
  spec.num_layers = std::int64_t{1} << 40;
  spec.num_blocks = std::int64_t{1} << 40;
  auto overflow = CpuKvCache::make(spec);
  EXPECT_EQ(overflow.error().code, ErrorCode::kTooLarge);
  EXPECT_THAT(overflow.error().message, HasSubstr("more than an address can hold"));
  spec = good;
  spec.num_blocks = std::int64_t{1} << 28;
  EXPECT_THAT(CpuKvCache::make(spec).error().message, HasSubstr("2^31 - 1 tokens"));
  // Possible numbers for which no machine has the address space (47 bits): 2^47 bytes.
  spec = {1024, 64, 1 << 10, 16, std::int64_t{1} << 16, DType::kF32};
  auto no_memory = CpuKvCache::make(spec);
  EXPECT_EQ(no_memory.error().code, ErrorCode::kTooLarge);
  EXPECT_THAT(no_memory.error().message, HasSubstr("562949953421312 bytes"));
}

}  // namespace
}  // namespace quire::cpu
