#include "backend/ref/ref_backend.h"

#include <fmt/core.h>

#include "backend/op_clock.h"
#include "backend/ref/ref_linear.h"
#include "backend/ref/ref_ops.h"

namespace quire::ref {
namespace {

class RefBackend final : public Backend {
 public:
  explicit RefBackend(const BackendOptions& options)
      : mode_(options.compute), pool_({options.num_threads, options.pin_threads}) {}

  std::string name() const override { return "ref"; }
  ComputeMode compute_mode() const override { return mode_; }
  std::vector<std::string> report() const override {
    return {
        fmt::format("backend ref: plain C++, sums in float64, compute {}, {} threads (linear layers only)",
                    compute_mode_name(mode_), pool_.num_threads())};
  }
  ThreadPool& pool() override { return pool_; }
  OpTimes op_times() const override { return clock_.times(); }

  Result<std::unique_ptr<PackedWeight>> pack(const GroupedRows& rows) override { return ref::pack(rows); }
  Result<std::unique_ptr<PackedWeight>> pack(const FloatRows& rows) override { return ref::pack(rows); }
  void embed(const PackedWeight& table, std::span<const std::int32_t> ids, float* out) override {
    const OpClock::Scope scope(clock_, OpClock::kOther);
    ref::embed(table, ids, out);
  }
  void linear(const LinearInput& input, std::span<const LinearTarget> targets) override {
    const OpClock::Scope scope(clock_, OpClock::kLinear);
    ref::linear(pool_, mode_, input, targets);
  }

  void rms_norm(const float* x, const float* weight, float eps, std::int64_t num_rows, std::int64_t dim,
                float* out) override {
    const OpClock::Scope scope(clock_, OpClock::kOther);
    ref::rms_norm(x, weight, eps, num_rows, dim, out);
  }
  void add(float* x, const float* y, std::int64_t count) override {
    const OpClock::Scope scope(clock_, OpClock::kOther);
    ref::add(x, y, count);
  }
  void silu_mul(const float* gate, const float* up, std::int64_t count, float* out) override {
    const OpClock::Scope scope(clock_, OpClock::kOther);
    ref::silu_mul(gate, up, count, out);
  }
  void rope(float* x, std::int64_t num_rows, std::int64_t num_heads, std::int64_t head_dim,
            std::int64_t half_dim, const float* cos, const float* sin,
            const std::int32_t* positions) override {
    const OpClock::Scope scope(clock_, OpClock::kOther);
    ref::rope(x, num_rows, num_heads, head_dim, half_dim, cos, sin, positions);
  }

  Result<std::unique_ptr<KvCache>> make_kv_cache(const KvSpec& spec) override {
    QUIRE_TRY(std::unique_ptr<KvCache> cache, RefKvCache::make(spec));
    return cache;
  }
  void store_kv(KvCache& cache, std::int64_t layer, const float* k, const float* v, std::int64_t num_rows,
                const std::int32_t* slots) override {
    const OpClock::Scope scope(clock_, OpClock::kOther);
    ref::store_kv(RefKvCache::cast(cache), layer, k, v, num_rows, slots);
  }
  void attention(const float* q, const KvCache& cache, std::int64_t layer, const AttentionShape& shape,
                 const AttentionParams& params, float* out) override {
    const OpClock::Scope scope(clock_, OpClock::kAttention);
    ref::attention(q, RefKvCache::cast(cache), layer, shape, params, out);
  }
  void copy_block(KvCache& cache, std::int32_t from, std::int32_t to) override {
    ref::copy_block(RefKvCache::cast(cache), from, to);
  }

 private:
  const ComputeMode mode_;
  ThreadPool pool_;
  OpClock clock_;
};

}  // namespace

std::unique_ptr<Backend> make_ref_backend(const BackendOptions& options) {
  return std::make_unique<RefBackend>(options);
}

}  // namespace quire::ref
