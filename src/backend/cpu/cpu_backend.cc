#include "backend/cpu/cpu_backend.h"

#include <fmt/core.h>

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/elementwise/elementwise.h"
#include "backend/cpu/gemm/linear.h"
#include "backend/cpu/gemm/packed_weight.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kv_cache.h"
#include "backend/op_clock.h"

namespace quire::cpu {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(IsaChoice choice, const BackendOptions& options)
      : choice_(std::move(choice)),
        isa_(choice_.isa),
        mode_(options.compute),
        pool_({options.num_threads, options.pin_threads}),
        linear_(isa_, mode_, options.tuning, pool_),
        attention_(isa_, mode_, pool_) {}

  std::string name() const override { return "cpu"; }
  ComputeMode compute_mode() const override { return mode_; }
  std::vector<std::string> report() const override {
    std::vector<std::string> lines = {
        fmt::format("backend cpu: compute {}, {} threads", compute_mode_name(mode_), pool_.num_threads())};
    lines.insert(lines.end(), pool_.report().begin(), pool_.report().end());
    lines.insert(lines.end(), choice_.report.begin(), choice_.report.end());
    const std::vector<std::string>& kernels = linear_.kernels().report;
    lines.insert(lines.end(), kernels.begin(), kernels.end());
    lines.insert(lines.end(), attention_.report().begin(), attention_.report().end());
    if (mode_ == ComputeMode::kInt8)
      lines.push_back(
          "compute int8 holds for quantized weights; layers with float weights use bf16 activations");
    return lines;
  }
  ThreadPool& pool() override { return pool_; }
  OpTimes op_times() const override { return clock_.times(); }

  Result<std::unique_ptr<PackedWeight>> pack(const GroupedRows& rows) override {
    return gemm::pack(rows, pool_, packing());
  }
  Result<std::unique_ptr<PackedWeight>> pack(const FloatRows& rows) override {
    return gemm::pack(rows, pool_, packing());
  }
  std::string packing_key() const override {
    return fmt::format("cpu, layout {}, {}, {}", gemm::kPackedLayoutVersion, isa_name(isa_),
                       compute_mode_name(mode_));
  }
  Result<std::unique_ptr<PackedWeight>> restore(const PackedImage& image,
                                                std::shared_ptr<const void> owner) override {
    return gemm::restore(image, std::move(owner));
  }
  void embed(const PackedWeight& table, std::span<const std::int32_t> ids, float* out) override {
    const OpClock::Scope scope(clock_, OpClock::kOther);
    linear_.embed(table, ids, out);
  }
  void linear(const LinearInput& input, std::span<const LinearTarget> targets) override {
    const OpClock::Scope scope(clock_, OpClock::kLinear);
    linear_.run(input, targets);
  }

  void rms_norm(const float* x, const float* weight, float eps, std::int64_t num_rows, std::int64_t dim,
                float* out) override {
    const OpClock::Scope scope(clock_, OpClock::kOther);
    cpu::rms_norm(isa_, pool_, x, weight, eps, num_rows, dim, out);
  }
  void add(float* x, const float* y, std::int64_t count) override {
    const OpClock::Scope scope(clock_, OpClock::kOther);
    cpu::add(isa_, pool_, x, y, count);
  }
  void silu_mul(const float* gate, const float* up, std::int64_t count, float* out) override {
    const OpClock::Scope scope(clock_, OpClock::kOther);
    cpu::silu_mul(isa_, pool_, gate, up, count, out);
  }
  void rope(float* x, std::int64_t num_rows, std::int64_t num_heads, std::int64_t head_dim,
            std::int64_t half_dim, const float* cos, const float* sin,
            const std::int32_t* positions) override {
    const OpClock::Scope scope(clock_, OpClock::kOther);
    cpu::rope(isa_, pool_, x, num_rows, num_heads, head_dim, half_dim, cos, sin, positions);
  }

  std::size_t kv_block_bytes(const KvSpec& spec) const override {
    return CpuKvCache::block_bytes(spec, &attention_.kernels()[spec.dtype]);
  }
  Result<std::unique_ptr<KvCache>> make_kv_cache(const KvSpec& spec) override {
    QUIRE_TRY(std::unique_ptr<KvCache> cache, CpuKvCache::make(spec, &attention_.kernels()[spec.dtype]));
    return cache;
  }
  void store_kv(KvCache& cache, std::int64_t layer, const float* k, const float* v, std::int64_t num_rows,
                const std::int32_t* slots) override {
    const OpClock::Scope scope(clock_, OpClock::kOther);
    cpu::store_kv(isa_, pool_, CpuKvCache::cast(cache), layer, k, v, num_rows, slots);
  }
  void attention(const float* q, const KvCache& cache, std::int64_t layer, const AttentionShape& shape,
                 const AttentionParams& params, float* out) override {
    const OpClock::Scope scope(clock_, OpClock::kAttention);
    attention_.run(q, CpuKvCache::cast(cache), layer, shape, params, out);
  }
  void copy_block(KvCache& cache, std::int32_t from, std::int32_t to) override {
    cpu::copy_block(pool_, CpuKvCache::cast(cache), from, to);
  }

 private:
  gemm::Packing packing() const {
    return linear_.kernels().amx != nullptr && mode_ == ComputeMode::kBf16 ? gemm::Packing::kAmx
                                                                           : gemm::Packing::kTiles;
  }

  const IsaChoice choice_;
  const Isa isa_;
  const ComputeMode mode_;
  ThreadPool pool_;
  OpClock clock_;
  gemm::Linear linear_;
  Attention attention_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(const BackendOptions& options) {
  QUIRE_TRY(IsaChoice choice, choose_isa(options.isa));
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(std::move(choice), options));
}

}  // namespace quire::cpu
