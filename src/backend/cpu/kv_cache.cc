#include "backend/cpu/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "backend/cpu/elementwise/elementwise.h"
#include "base/check.h"

namespace quire::cpu {
namespace {

// What KvSpec::block_bytes() and the area size may not overflow: checked before anything is computed from it.
Status check_spec(const KvSpec& spec) {
  const std::pair<std::string_view, std::int64_t> sizes[] = {{"layers", spec.num_layers},
                                                             {"blocks", spec.num_blocks},
                                                             {"tokens per block", spec.block_size},
                                                             {"key-value heads", spec.num_kv_heads},
                                                             {"values per head", spec.head_dim}};
  std::size_t bytes = 2 * dtype_bytes(spec.dtype);
  for (const auto& [what, size] : sizes) {
    if (size <= 0) {
      return invalid(fmt::format("KV cache: {} {} is not possible; it must be at least 1", size, what));
    }
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes) || bytes > PTRDIFF_MAX) {
      return make_error(
          ErrorCode::kTooLarge,
          fmt::format(
              "KV cache: {} layers x {} blocks x {} tokens x {} heads x {} values of {} bytes are more "
              "than an address can hold; ask for fewer blocks",
              spec.num_layers, spec.num_blocks, spec.block_size, spec.num_kv_heads, spec.head_dim,
              dtype_bytes(spec.dtype)));
    }
  }
  if (spec.num_blocks > INT32_MAX / spec.block_size) {
    return make_error(
        ErrorCode::kTooLarge,
        fmt::format("KV cache: {} blocks of {} tokens are more than 2^31 - 1 tokens; ask for fewer blocks",
                    spec.num_blocks, spec.block_size));
  }
  return {};
}

// Stores one row of one kv head. row: head_dim elements of the cache's type; Element has their size.
template <typename Element>
void store_row(const Element* key, const Element* value, std::byte* area, std::size_t value_offset,
               std::int64_t offset, std::int64_t width, std::int64_t head_dim) {
  Element* keys = reinterpret_cast<Element*>(area) + offset / width * width * head_dim + offset % width;
  for (std::int64_t d = 0; d < head_dim; ++d) keys[d * width] = key[d];
  std::memcpy(area + value_offset + static_cast<std::size_t>(offset * head_dim) * sizeof(Element), value,
              static_cast<std::size_t>(head_dim) * sizeof(Element));
}

// Rows per part of store_kv: a tile and more, so that two threads rarely share a tile's cache lines.
constexpr std::int64_t kStoreRows = 64;

}  // namespace

CpuKvCache::Area CpuKvCache::area_of(const KvSpec& spec, const AttentionKernel* kernel) {
  const auto block_size = static_cast<std::size_t>(spec.block_size);
  const auto head_dim = static_cast<std::size_t>(spec.head_dim);
  Area area;
  if (kernel == nullptr || kernel->store == nullptr) {
    area.value_offset = dtype_bytes(spec.dtype) * block_size * head_dim;
    area.scale_offset = area.size = 2 * area.value_offset;
  } else {
    area.value_offset = block_size * ((head_dim + 1) / 2) * 2 * sizeof(std::int16_t);
    area.scale_offset = area.value_offset + block_size * ((head_dim + 15) / 16 * 16) * sizeof(std::int16_t);
    area.size = (area.scale_offset + block_size * 2 * sizeof(float) + 63) / 64 * 64;
  }
  return area;
}

std::size_t CpuKvCache::block_bytes(const KvSpec& spec, const AttentionKernel* kernel) {
  return static_cast<std::size_t>(spec.num_layers * spec.num_kv_heads) * area_of(spec, kernel).size;
}

CpuKvCache::CpuKvCache(const KvSpec& spec, const AttentionKernel* kernel)
    : spec_(spec),
      tile_width_(std::gcd(spec.block_size, kKvTile)),
      store_(kernel != nullptr ? kernel->store : nullptr),
      area_(area_of(spec, kernel)) {
  std::size_t num_bytes = area_.size;
  for (const std::int64_t count : {spec.num_layers, spec.num_blocks, spec.num_kv_heads}) {
    if (__builtin_mul_overflow(num_bytes, static_cast<std::size_t>(count), &num_bytes))
      throw std::bad_alloc();
  }
  memory_ = Buffer(num_bytes);
}

Result<std::unique_ptr<CpuKvCache>> CpuKvCache::make(const KvSpec& spec, const AttentionKernel* kernel) {
  QUIRE_RETURN_IF_ERROR(check_spec(spec));
  try {
    return std::unique_ptr<CpuKvCache>(new CpuKvCache(spec, kernel));
  } catch (const std::bad_alloc&) {
    return make_error(
        ErrorCode::kTooLarge,
        fmt::format(
            "KV cache: the system gives no {} bytes ({:.1f} GiB) for {} blocks of {} tokens in {}; ask "
            "for fewer blocks or a smaller type",
            spec.block_bytes() * static_cast<std::size_t>(spec.num_blocks),
            static_cast<double>(spec.block_bytes()) * static_cast<double>(spec.num_blocks) / (1 << 30),
            spec.num_blocks, spec.block_size, dtype_name(spec.dtype)));
  }
}

CpuKvCache& CpuKvCache::cast(KvCache& cache) {
  auto* own = dynamic_cast<CpuKvCache*>(&cache);
  QUIRE_CHECK(own != nullptr) << "this KV cache was made by another backend";
  return *own;
}
const CpuKvCache& CpuKvCache::cast(const KvCache& cache) {
  const auto* own = dynamic_cast<const CpuKvCache*>(&cache);
  QUIRE_CHECK(own != nullptr) << "this KV cache was made by another backend";
  return *own;
}

const std::byte* CpuKvCache::area(std::int64_t layer, std::int64_t block, std::int64_t kv_head) const {
  QUIRE_CHECK(layer >= 0 && layer < spec_.num_layers) << "layer " << layer << " of " << spec_.num_layers;
  QUIRE_CHECK(block >= 0 && block < spec_.num_blocks) << "block " << block << " of " << spec_.num_blocks;
  QUIRE_CHECK(kv_head >= 0 && kv_head < spec_.num_kv_heads) << "head " << kv_head;
  const auto index =
      static_cast<std::size_t>((layer * spec_.num_blocks + block) * spec_.num_kv_heads + kv_head);
  return memory_.data() + index * area_.size;
}
std::byte* CpuKvCache::area(std::int64_t layer, std::int64_t block, std::int64_t kv_head) {
  return const_cast<std::byte*>(std::as_const(*this).area(layer, block, kv_head));
}

void store_kv(Isa isa, ThreadPool& pool, CpuKvCache& cache, std::int64_t layer, const float* k,
              const float* v, std::int64_t num_rows, const std::int32_t* slots) {
  const KvSpec& spec = cache.spec();
  const ElementwiseKernel& kernel = elementwise_kernel(isa);
  const std::int64_t head_dim = spec.head_dim;
  const std::int64_t num_parts = (num_rows + kStoreRows - 1) / kStoreRows;
  pool.run(num_parts, [&](std::int64_t part) {
    const std::int64_t end = std::min(num_rows, (part + 1) * kStoreRows);
    std::vector<std::uint16_t> narrow(spec.dtype == DType::kF32 ? 0 : static_cast<std::size_t>(2 * head_dim));
    for (std::int64_t h = 0; h < spec.num_kv_heads; ++h) {
      for (std::int64_t t = part * kStoreRows; t < end; ++t) {
        std::byte* area = cache.area(layer, slots[t] / spec.block_size, h);
        const std::int64_t offset = slots[t] % spec.block_size;
        const float* key = k + (t * spec.num_kv_heads + h) * head_dim;
        const float* value = v + (t * spec.num_kv_heads + h) * head_dim;
        if (cache.holds_integers()) {
          cache.store_(key, value,
                       {area, cache.value_offset_bytes(), cache.scale_offset_bytes(), spec.block_size,
                        cache.tile_width(), head_dim, offset});
          continue;
        }
        if (spec.dtype == DType::kF32) {
          store_row(key, value, area, cache.value_offset_bytes(), offset, cache.tile_width(), head_dim);
          continue;
        }
        const auto round = spec.dtype == DType::kF16 ? kernel.to_f16 : kernel.to_bf16;
        round(key, head_dim, narrow.data());
        round(value, head_dim, narrow.data() + head_dim);
        store_row(narrow.data(), narrow.data() + head_dim, area, cache.value_offset_bytes(), offset,
                  cache.tile_width(), head_dim);
      }
    }
  });
}

void copy_block(ThreadPool& pool, CpuKvCache& cache, std::int32_t from, std::int32_t to) {
  if (from == to) return;
  pool.run(cache.spec().num_layers, [&](std::int64_t layer) {
    std::memcpy(cache.area(layer, to, 0), cache.area(layer, from, 0), cache.block_stride_bytes());
  });
}

}  // namespace quire::cpu
