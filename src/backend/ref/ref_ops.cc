#include "backend/ref/ref_ops.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <stdexcept>

#include <fmt/core.h>

#include "base/check.h"

namespace quire::ref {

void rms_norm(const float* x, const float* weight, float eps, std::int64_t num_rows, std::int64_t dim,
              float* out) {
  for (std::int64_t t = 0; t < num_rows; ++t) {
    double sum = 0;
    for (std::int64_t i = 0; i < dim; ++i) {
      const double value = x[t * dim + i];
      sum += value * value;
    }
    const double factor = 1.0 / std::sqrt(sum / static_cast<double>(dim) + static_cast<double>(eps));
    for (std::int64_t i = 0; i < dim; ++i) {
      out[t * dim + i] = static_cast<float>(x[t * dim + i] * factor * weight[i]);
    }
  }
}

void add(float* x, const float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) x[i] += y[i];
}

void silu_mul(const float* gate, const float* up, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double g = gate[i];
    out[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * up[i]);
  }
}

void rope(float* x, std::int64_t num_rows, std::int64_t num_heads, std::int64_t head_dim,
          std::int64_t half_dim, const float* cos, const float* sin, const std::int32_t* positions) {
  for (std::int64_t t = 0; t < num_rows; ++t) {
    const float* row_cos = cos + positions[t] * half_dim;
    const float* row_sin = sin + positions[t] * half_dim;
    for (std::int64_t h = 0; h < num_heads; ++h) {
      float* head = x + (t * num_heads + h) * head_dim;
      for (std::int64_t i = 0; i < half_dim; ++i) {
        const double a = head[i];
        const double b = head[i + half_dim];
        const double c = row_cos[i];
        const double s = row_sin[i];
        head[i] = static_cast<float>(a * c - b * s);
        head[i + half_dim] = static_cast<float>(b * c + a * s);
      }
    }
  }
}

Result<std::unique_ptr<RefKvCache>> RefKvCache::make(const KvSpec& spec) {
  std::size_t count = 1;
  for (const std::int64_t size :
       {spec.num_layers, spec.num_blocks, spec.block_size, spec.num_kv_heads, spec.head_dim}) {
    const bool positive = size > 0;
    if (!positive || __builtin_mul_overflow(count, static_cast<std::size_t>(size), &count)) {
      return make_error(
          positive ? ErrorCode::kTooLarge : ErrorCode::kInvalid,
          fmt::format(
              "KV cache: {} layers x {} blocks x {} tokens x {} heads x {} values is not a possible size; "
              "all five must be positive and their product must fit in memory",
              spec.num_layers, spec.num_blocks, spec.block_size, spec.num_kv_heads, spec.head_dim));
    }
  }
  if (spec.num_blocks > INT32_MAX / spec.block_size) {
    return make_error(
        ErrorCode::kTooLarge,
        fmt::format("KV cache: {} blocks x {} tokens is more than 2^31 - 1 tokens; ask for fewer",
                    spec.num_blocks, spec.block_size));
  }
  std::unique_ptr<RefKvCache> cache(new RefKvCache(spec));
  try {
    cache->keys_.resize(count);
    cache->values_.resize(count);
  } catch (const std::exception&) {  // bad_alloc or length_error
    return make_error(
        ErrorCode::kTooLarge,
        fmt::format("KV cache: no memory for 2 x {} values of 4 bytes; ask for fewer blocks", count));
  }
  return cache;
}

RefKvCache& RefKvCache::cast(KvCache& cache) {
  auto* own = dynamic_cast<RefKvCache*>(&cache);
  QUIRE_CHECK(own != nullptr) << "this KV cache was made by another backend";
  return *own;
}
const RefKvCache& RefKvCache::cast(const KvCache& cache) {
  const auto* own = dynamic_cast<const RefKvCache*>(&cache);
  QUIRE_CHECK(own != nullptr) << "this KV cache was made by another backend";
  return *own;
}

std::size_t RefKvCache::offset(std::int64_t layer, std::int64_t slot, std::int64_t kv_head) const {
  const std::int64_t num_slots = spec_.num_blocks * spec_.block_size;
  QUIRE_CHECK(layer >= 0 && layer < spec_.num_layers) << "layer " << layer;
  QUIRE_CHECK(slot >= 0 && slot < num_slots) << "slot " << slot << " of " << num_slots;
  return static_cast<std::size_t>(((layer * num_slots + slot) * spec_.num_kv_heads + kv_head) *
                                  spec_.head_dim);
}
float* RefKvCache::key(std::int64_t layer, std::int64_t slot, std::int64_t kv_head) {
  return keys_.data() + offset(layer, slot, kv_head);
}
float* RefKvCache::value(std::int64_t layer, std::int64_t slot, std::int64_t kv_head) {
  return values_.data() + offset(layer, slot, kv_head);
}
const float* RefKvCache::key(std::int64_t layer, std::int64_t slot, std::int64_t kv_head) const {
  return keys_.data() + offset(layer, slot, kv_head);
}
const float* RefKvCache::value(std::int64_t layer, std::int64_t slot, std::int64_t kv_head) const {
  return values_.data() + offset(layer, slot, kv_head);
}

float round_to_dtype(float value, DType dtype) {
  constexpr float kMaxF16 = 65504.0f;
  switch (dtype) {
    case DType::kF16:
      if (std::isnan(value)) return value;
      return f16_to_f32(f32_to_f16(std::clamp(value, -kMaxF16, kMaxF16)));
    case DType::kBf16:
      return bf16_to_f32(f32_to_bf16(value));
    case DType::kF32:
      break;
  }
  return value;
}

void store_kv(RefKvCache& cache, std::int64_t layer, const float* k, const float* v, std::int64_t num_rows,
              const std::int32_t* slots) {
  const KvSpec& spec = cache.spec();
  for (std::int64_t t = 0; t < num_rows; ++t) {
    for (std::int64_t h = 0; h < spec.num_kv_heads; ++h) {
      float* key = cache.key(layer, slots[t], h);
      float* value = cache.value(layer, slots[t], h);
      const std::int64_t row = (t * spec.num_kv_heads + h) * spec.head_dim;
      for (std::int64_t d = 0; d < spec.head_dim; ++d) {
        key[d] = round_to_dtype(k[row + d], spec.dtype);
        value[d] = round_to_dtype(v[row + d], spec.dtype);
      }
    }
  }
}

void attention(const float* q, const RefKvCache& cache, std::int64_t layer, const AttentionShape& shape,
               const AttentionParams& params, float* out) {
  const KvSpec& spec = cache.spec();
  QUIRE_CHECK_EQ(params.num_heads % spec.num_kv_heads, 0);
  const std::int64_t heads_per_kv = params.num_heads / spec.num_kv_heads;
  const std::int64_t head_dim = spec.head_dim;
  std::vector<double> weights;
  std::vector<double> sum(static_cast<std::size_t>(head_dim));
  for (std::int64_t s = 0; s < shape.num_seqs; ++s) {
    const std::int32_t* table = shape.block_tables + s * shape.block_table_stride;
    const auto slot_of = [&](std::int64_t position) {
      return table[position / spec.block_size] * spec.block_size + position % spec.block_size;
    };
    const AttentionReach reach = attention_reach(shape, params, s);
    const std::int64_t num_queries = shape.query_starts[s + 1] - shape.query_starts[s];
    std::vector<std::int64_t> seen;
    for (std::int64_t i = 0; i < num_queries; ++i) {
      const std::int64_t row = shape.query_starts[s] + i;
      const std::int64_t position = shape.context_lens[s] - num_queries + i;
      const std::int64_t oldest = reach.window > 0 ? position - reach.window + 1 : 0;
      seen.clear();
      for (std::int64_t p = 0; p <= position; ++p) {
        if (p < reach.sinks || p >= oldest) seen.push_back(p);
      }
      for (std::int64_t h = 0; h < params.num_heads; ++h) {
        const std::int64_t place = (row * params.num_heads + h) * head_dim;
        weights.clear();
        double largest = -INFINITY;
        for (const std::int64_t p : seen) {
          const float* query = (p < reach.sinks ? shape.sink_q : q) + place;
          const float* key = cache.key(layer, slot_of(p), h / heads_per_kv);
          double score = 0;
          for (std::int64_t d = 0; d < head_dim; ++d) score += static_cast<double>(query[d]) * key[d];
          score *= params.scale;
          if (params.softcap > 0) score = params.softcap * std::tanh(score / params.softcap);
          weights.push_back(score);
          largest = std::max(largest, score);
        }
        double total = 0;
        for (double& weight : weights) {
          weight = std::exp(weight - largest);
          total += weight;
        }
        std::fill(sum.begin(), sum.end(), 0.0);
        for (std::size_t j = 0; j < seen.size(); ++j) {
          const float* value = cache.value(layer, slot_of(seen[j]), h / heads_per_kv);
          const double weight = weights[j];
          for (std::int64_t d = 0; d < head_dim; ++d) sum[static_cast<std::size_t>(d)] += weight * value[d];
        }
        float* result = out + (row * params.num_heads + h) * head_dim;
        for (std::int64_t d = 0; d < head_dim; ++d) {
          result[d] = static_cast<float>(sum[static_cast<std::size_t>(d)] / total);
        }
      }
    }
  }
}

void copy_block(RefKvCache& cache, std::int32_t from, std::int32_t to) {
  const KvSpec& spec = cache.spec();
  const std::int64_t count = spec.block_size * spec.num_kv_heads * spec.head_dim;
  if (from == to) return;
  for (std::int64_t layer = 0; layer < spec.num_layers; ++layer) {
    std::copy_n(cache.key(layer, from * spec.block_size, 0), count,
                cache.key(layer, to * spec.block_size, 0));
    std::copy_n(cache.value(layer, from * spec.block_size, 0), count,
                cache.value(layer, to * spec.block_size, 0));
  }
}

}  // namespace quire::ref
