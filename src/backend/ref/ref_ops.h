// Purpose: the float operations and the key-value cache of the `ref` backend: plain loops in double
// precision, the oracle of every kernel test. In/out: as the functions of the same name in backend/backend.h.
// Thread: the caller only. Each row is computed alone, so the contract of exactness holds by construction.
// Out of scope: linear layers (ref_linear.h), speed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"

namespace quire::ref {

void rms_norm(const float* x, const float* weight, float eps, std::int64_t num_rows, std::int64_t dim,
              float* out);
void add(float* x, const float* y, std::int64_t count);
void silu_mul(const float* gate, const float* up, std::int64_t count, float* out);
void rope(float* x, std::int64_t num_rows, std::int64_t num_heads, std::int64_t head_dim,
          std::int64_t half_dim, const float* cos, const float* sin, const std::int32_t* positions);

// Keys and values as float32, each already rounded to spec().dtype, so it takes more memory than
// block_bytes() says when the dtype is a 16-bit one.
class RefKvCache final : public KvCache {
 public:
  // Refuses sizes that are not positive, that overflow, or that do not fit in memory.
  static Result<std::unique_ptr<RefKvCache>> make(const KvSpec& spec);
  // The cache that a backend of this kind made; CHECKs that it is one.
  static RefKvCache& cast(KvCache& cache);
  static const RefKvCache& cast(const KvCache& cache);

  const KvSpec& spec() const override { return spec_; }
  // head_dim values. slot = block * block_size + offset.
  float* key(std::int64_t layer, std::int64_t slot, std::int64_t kv_head);
  float* value(std::int64_t layer, std::int64_t slot, std::int64_t kv_head);
  const float* key(std::int64_t layer, std::int64_t slot, std::int64_t kv_head) const;
  const float* value(std::int64_t layer, std::int64_t slot, std::int64_t kv_head) const;

 private:
  explicit RefKvCache(const KvSpec& spec) : spec_(spec) {}
  std::size_t offset(std::int64_t layer, std::int64_t slot, std::int64_t kv_head) const;

  KvSpec spec_;
  std::vector<float> keys_;    // [num_layers, num_slots, num_kv_heads, head_dim]
  std::vector<float> values_;  // the same
};

// What a value becomes in a cache of this type: round to nearest even; float16 saturates at +-65504.
float round_to_dtype(float value, DType dtype);

void store_kv(RefKvCache& cache, std::int64_t layer, const float* k, const float* v, std::int64_t num_rows,
              const std::int32_t* slots);
void attention(const float* q, const RefKvCache& cache, std::int64_t layer, const AttentionShape& shape,
               const AttentionParams& params, float* out);
void copy_block(RefKvCache& cache, std::int32_t from, std::int32_t to);

}  // namespace quire::ref
