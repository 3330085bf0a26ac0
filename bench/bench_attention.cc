// Measures attention of the `cpu` backend: decode (one token against a long context: bytes of keys and values
// per second) and prefill (a prompt against itself: multiply-adds per second), each beside what this machine
// can do at best, measured in the same run. The answer of every shape is checked against the reference first.
//   bench_attention [--threads N] [--isa NAME] [--block-size N] [--only TEXT]
// --only keeps the cases whose name, such as "Qwen2.5-0.5B 14/2x64 f32 decode 2048", contains TEXT.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kv_cache.h"
#include "backend/ref/ref_ops.h"
#include "base/thread_pool.h"

namespace quire {
namespace {

struct Shape {
  const char* name;
  std::int64_t num_heads;
  std::int64_t num_kv_heads;
  std::int64_t head_dim;
};
constexpr Shape kShapes[] = {{"Qwen2.5-0.5B 14/2x64", 14, 2, 64},
                             {"SmolLM2-135M 9/3x64", 9, 3, 64},
                             {"Qwen2.5-1.5B 12/2x128", 12, 2, 128},
                             {"Llama-3-8B 32/8x128", 32, 8, 128}};

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The shortest time of one call, over at least 0.3 s and 5 calls.
double best_seconds(const std::function<void()>& work) {
  work();
  double best = 1e9;
  double total = 0;
  for (int i = 0; i < 5 || total < 0.3; ++i) {
    const double time = seconds(work);
    best = std::min(best, time);
    total += time;
  }
  return best;
}

// Bytes per second that all threads together read from memory.
double read_bandwidth(ThreadPool& pool) {
  constexpr std::int64_t kPart = std::int64_t{1} << 20;  // uint64 values
  constexpr std::int64_t kParts = 32;                    // 256 MiB
  std::vector<std::uint64_t> memory(kPart * kParts, 1);
  std::vector<std::uint64_t> sums(kParts);
  const double time = best_seconds([&] {
    pool.run(kParts, [&](std::int64_t part) {
      const std::uint64_t* p = memory.data() + part * kPart;
      std::uint64_t sum[8] = {};
      for (std::int64_t i = 0; i < kPart; i += 8) {
        for (int j = 0; j < 8; ++j) sum[j] += p[i + j];
      }
      sums[static_cast<std::size_t>(part)] = std::accumulate(sum, sum + 8, std::uint64_t{0});
    });
  });
  return static_cast<double>(kPart * kParts * 8) / time;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) float fma_loop_avx512(std::int64_t count) {
  __m512 sum[12];
  for (__m512& s : sum) s = _mm512_set1_ps(1.0f);
  const __m512 factor = _mm512_set1_ps(0.999f);
  for (std::int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) sum[j] = _mm512_fmadd_ps(sum[j], factor, factor);
  }
  for (int j = 1; j < 12; ++j) sum[0] = _mm512_add_ps(sum[0], sum[j]);
  float lanes[16];
  _mm512_storeu_ps(lanes, sum[0]);
  return lanes[0];
}
__attribute__((target("avx2,fma"))) float fma_loop_avx2(std::int64_t count) {
  __m256 sum[12];
  for (__m256& s : sum) s = _mm256_set1_ps(1.0f);
  const __m256 factor = _mm256_set1_ps(0.999f);
  for (std::int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) sum[j] = _mm256_fmadd_ps(sum[j], factor, factor);
  }
  for (int j = 1; j < 12; ++j) sum[0] = _mm256_add_ps(sum[0], sum[j]);
  float lanes[8];
  _mm256_storeu_ps(lanes, sum[0]);
  return lanes[0];
}
#endif

// Float operations per second (a multiply-add is two) of all threads with this tier's vectors; 0 if unknown.
double peak_flops(ThreadPool& pool, cpu::Isa isa) {
#if defined(__x86_64__)
  if (isa == cpu::Isa::kGeneric) return 0;
  const bool wide = isa != cpu::Isa::kAvx2;
  constexpr std::int64_t kCount = 1'000'000;
  std::vector<float> sink(static_cast<std::size_t>(pool.num_threads()));
  const double time = best_seconds([&] {
    pool.run(pool.num_threads(), [&](std::int64_t part) {
      sink[static_cast<std::size_t>(part)] = wide ? fma_loop_avx512(kCount) : fma_loop_avx2(kCount);
    });
  });
  return 2.0 * 12 * (wide ? 16 : 8) * kCount * pool.num_threads() / time;
#else
  return 0;
#endif
}

// One sequence in scattered blocks, in both caches.
class Bench {
 public:
  Bench(const Shape& shape, DType dtype, std::int64_t block_size, std::int64_t context,
        std::int64_t num_layers, cpu::Isa isa, ThreadPool& pool)
      : shape_(shape), context_(context), num_layers_(num_layers), attention_(isa, pool) {
    const std::int64_t num_blocks = (context + block_size - 1) / block_size;
    KvSpec spec = {num_layers, shape.num_kv_heads, shape.head_dim, block_size, num_blocks, dtype};
    cache_ = std::move(cpu::CpuKvCache::make(spec).value());
    spec.num_layers = 1;
    ref_cache_ = std::move(ref::RefKvCache::make(spec).value());
    table_.resize(static_cast<std::size_t>(num_blocks));
    std::iota(table_.begin(), table_.end(), 0);
    std::mt19937 random(7);
    std::shuffle(table_.begin(), table_.end(), random);
    std::normal_distribution<float> normal;
    const std::int64_t width = shape.num_kv_heads * shape.head_dim;
    std::vector<float> k(static_cast<std::size_t>(context * width));
    std::vector<float> v(k.size());
    for (float& x : k) x = normal(random);
    for (float& x : v) x = normal(random);
    q_.resize(static_cast<std::size_t>(context * shape.num_heads * shape.head_dim));
    for (float& x : q_) x = normal(random);
    out_.resize(q_.size());
    std::vector<std::int32_t> slots;
    for (std::int64_t p = 0; p < context; ++p) {
      slots.push_back(static_cast<std::int32_t>(
          table_[static_cast<std::size_t>(p / block_size)] * block_size + p % block_size));
    }
    for (std::int64_t layer = 0; layer < num_layers; ++layer) {
      cpu::store_kv(isa, pool, *cache_, layer, k.data(), v.data(), context, slots.data());
    }
    ref::store_kv(*ref_cache_, 0, k.data(), v.data(), context, slots.data());
    params_ = {shape.num_heads, 1.0f / std::sqrt(static_cast<float>(shape.head_dim)), 0, 0.0f};
  }
  void run(std::int64_t num_queries, std::int64_t layer) {
    with_shape(num_queries, [&](const AttentionShape& shape) {
      attention_.run(q_.data(), *cache_, layer, shape, params_, out_.data());
    });
  }
  // The last queries, so that the reference is quick.
  bool check(std::int64_t num_queries) {
    run(num_queries, 0);
    const std::int64_t row = shape_.num_heads * shape_.head_dim;
    const std::int64_t checked = std::min<std::int64_t>(num_queries, 3);
    std::vector<float> want(static_cast<std::size_t>(checked * row));
    with_shape(checked, [&](const AttentionShape& shape) {
      ref::attention(q_.data() + (num_queries - checked) * row, *ref_cache_, 0, shape, params_, want.data());
    });
    for (std::int64_t i = 0; i < checked * row; ++i) {
      const float got = out_[static_cast<std::size_t>((num_queries - checked) * row + i)];
      if (!(std::abs(got - want[static_cast<std::size_t>(i)]) < 1e-5f)) {
        std::printf("WRONG: value %lld is %g, not %g\n", static_cast<long long>(i), static_cast<double>(got),
                    static_cast<double>(want[static_cast<std::size_t>(i)]));
        return false;
      }
    }
    return true;
  }
  // Seconds per layer.
  double time(std::int64_t num_queries) {
    return best_seconds([&] {
             for (std::int64_t layer = 0; layer < num_layers_; ++layer) run(num_queries, layer);
           }) /
           static_cast<double>(num_layers_);
  }

 private:
  void with_shape(std::int64_t num_queries, const std::function<void(const AttentionShape&)>& use) {
    const std::int32_t starts[] = {0, static_cast<std::int32_t>(num_queries)};
    const std::int32_t contexts[] = {static_cast<std::int32_t>(context_)};
    use({1, starts, contexts, table_.data(), static_cast<std::int64_t>(table_.size())});
  }

  Shape shape_;
  std::int64_t context_;
  std::int64_t num_layers_;
  cpu::Attention attention_;
  std::unique_ptr<cpu::CpuKvCache> cache_;
  std::unique_ptr<ref::RefKvCache> ref_cache_;
  std::vector<std::int32_t> table_;
  std::vector<float> q_;
  std::vector<float> out_;
  AttentionParams params_;
};

int run(int argc, char** argv) {
  int num_threads = detect_cpu_budget().num_usable;
  std::string pin;
  std::string only;
  std::int64_t block_size = 16;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[++i] : "";
    if (flag == "--threads" && std::atoi(value) > 0) {
      num_threads = std::atoi(value);
    } else if (flag == "--isa") {
      pin = value;
    } else if (flag == "--only") {
      only = value;
    } else if (flag == "--block-size" && std::atoi(value) > 0) {
      block_size = std::atoi(value);
    } else {
      std::fprintf(stderr,
                   "usage: bench_attention [--threads N] [--isa NAME] [--block-size N] [--only TEXT]\n");
      return 2;
    }
  }
  const auto choice = cpu::choose_isa(pin);
  if (!choice.ok()) {
    std::fprintf(stderr, "%s\n", choice.error().message.c_str());
    return 2;
  }
  const cpu::Isa isa = choice->isa;
  ThreadPool pool(num_threads);
  const double bandwidth = read_bandwidth(pool);
  const double flops = peak_flops(pool, isa);
  std::printf("%d threads, %s, blocks of %lld; this machine: %.1f GB/s read, %.0f GFLOP/s\n", num_threads,
              std::string(cpu::isa_name(isa)).c_str(), static_cast<long long>(block_size), bandwidth / 1e9,
              flops / 1e9);
  for (const Shape& shape : kShapes) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
      const std::string model = std::string(shape.name) + " " + std::string(dtype_name(dtype));
      for (const std::int64_t context : {128, 512, 2048, 8192}) {
        const std::string name = model + " decode " + std::to_string(context);
        if (name.find(only) == std::string::npos) continue;
        const double bytes = 2.0 * static_cast<double>(shape.num_kv_heads * shape.head_dim * context) *
                             static_cast<double>(dtype_bytes(dtype));
        // As many layers as make 64 MB, so that the data come from memory as in a model.
        const auto num_layers = std::clamp<std::int64_t>(static_cast<std::int64_t>(64e6 / bytes), 1, 512);
        Bench bench(shape, dtype, block_size, context, num_layers, isa, pool);
        if (!bench.check(1)) return 1;
        const double time = bench.time(1);
        std::printf("%-40s %9.1f us  %6.1f GB/s (%3.0f%%)\n", name.c_str(), time * 1e6, bytes / time / 1e9,
                    100 * bytes / time / bandwidth);
      }
      for (const std::int64_t prompt : {512, 2048}) {
        const std::string name = model + " prefill " + std::to_string(prompt);
        if (name.find(only) == std::string::npos) continue;
        Bench bench(shape, dtype, block_size, prompt, 1, isa, pool);
        if (!bench.check(prompt)) return 1;
        const double time = bench.time(prompt);
        // Two multiply-adds per value and visible position.
        const double ops = 4.0 * static_cast<double>(shape.num_heads * shape.head_dim) *
                           static_cast<double>(prompt * (prompt + 1) / 2);
        std::printf("%-40s %9.1f us  %6.1f GFLOP/s", name.c_str(), time * 1e6, ops / time / 1e9);
        if (flops > 0) std::printf(" (%3.0f%%)", 100 * ops / time / flops);
        std::printf("\n");
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::run(argc, argv);
}
