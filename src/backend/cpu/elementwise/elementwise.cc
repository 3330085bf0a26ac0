#include "backend/cpu/elementwise/elementwise.h"

#include <algorithm>

#include "base/check.h"

namespace quire::cpu {
namespace {

// Values per part: some 4 us of work, several times what waking the pool costs.
constexpr std::int64_t kPartValues = 16384;

// Calls part(begin, end) over [0, count), in parts of some kPartValues values; `values` per item.
template <typename F>
void split(ThreadPool& pool, std::int64_t count, std::int64_t values, F part) {
  const std::int64_t step = std::max<std::int64_t>(1, kPartValues / std::max<std::int64_t>(1, values));
  pool.run((count + step - 1) / step,
           [&](std::int64_t i) { part(i * step, std::min(count, (i + 1) * step)); });
}

}  // namespace

const ElementwiseKernel& elementwise_kernel(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
      return kElementwiseAvx2;
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
    case Isa::kAmx:
      return kElementwiseAvx512;
#endif
    default:
      return kElementwiseGeneric;
  }
}

void rms_norm(Isa isa, ThreadPool& pool, const float* x, const float* weight, float eps,
              std::int64_t num_rows, std::int64_t dim, float* out) {
  const ElementwiseKernel& kernel = elementwise_kernel(isa);
  split(pool, num_rows, dim, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) kernel.rms_norm(x + t * dim, weight, eps, dim, out + t * dim);
  });
}

void add(Isa isa, ThreadPool& pool, float* x, const float* y, std::int64_t count) {
  const ElementwiseKernel& kernel = elementwise_kernel(isa);
  split(pool, count, 1,
        [&](std::int64_t begin, std::int64_t end) { kernel.add(x + begin, y + begin, end - begin); });
}

void silu_mul(Isa isa, ThreadPool& pool, const float* gate, const float* up, std::int64_t count, float* out) {
  const ElementwiseKernel& kernel = elementwise_kernel(isa);
  split(pool, count, 1, [&](std::int64_t begin, std::int64_t end) {
    kernel.silu_mul(gate + begin, up + begin, end - begin, out + begin);
  });
}

void rope(Isa isa, ThreadPool& pool, float* x, std::int64_t num_rows, std::int64_t num_heads,
          std::int64_t head_dim, std::int64_t half_dim, const float* cos, const float* sin,
          const std::int32_t* positions) {
  QUIRE_CHECK_LE(2 * half_dim, head_dim);
  const ElementwiseKernel& kernel = elementwise_kernel(isa);
  split(pool, num_rows, num_heads * head_dim, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* row_cos = cos + positions[t] * half_dim;
      const float* row_sin = sin + positions[t] * half_dim;
      for (std::int64_t h = 0; h < num_heads; ++h) {
        kernel.rope(x + (t * num_heads + h) * head_dim, half_dim, row_cos, row_sin);
      }
    }
  });
}

}  // namespace quire::cpu
