// Measures attention of the `cpu` backend: decode (one token per sequence against its context) and prefill (a
// prompt against itself), in multiply-adds per second and in bytes of keys and values per second, each beside
// what this machine can do at best, measured in the same run: multiply-adds of float32, or of 16-bit integers
// where the kernel uses those. The answer of every shape is checked against the reference first.
//   bench_attention [--threads N] [--isa NAME] [--compute f32|bf16] [--block-size N] [--in-order 1] [--only
//   TEXT]
// --compute is the mode the kernel is chosen for (float16 caches in bf16, float32 ones in f32). --in-order
// lays a sequence's blocks side by side instead of scattering them. --only keeps the cases whose name, such
// as "Qwen2.5-0.5B 14/2x64 f16 decode 1 x 4096", contains TEXT.
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
__attribute__((target("avx512f,avx512vnni"))) float dot_loop_avx512(std::int64_t count) {
  __m512i sum[12];
  for (__m512i& s : sum) s = _mm512_set1_epi32(1);
  const __m512i factor = _mm512_set1_epi32(0x00010001);
  for (std::int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) sum[j] = _mm512_dpwssd_epi32(sum[j], factor, factor);
  }
  for (int j = 1; j < 12; ++j) sum[0] = _mm512_add_epi32(sum[0], sum[j]);
  alignas(64) std::int32_t lanes[16];
  _mm512_store_si512(lanes, sum[0]);
  return static_cast<float>(lanes[0]);
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

// Multiply-adds per second of all threads with the vectors that this tier's kernel uses; 0 if unknown.
double peak_macs(ThreadPool& pool, cpu::Isa isa, bool integers) {
#if defined(__x86_64__)
  if (isa == cpu::Isa::kGeneric) return 0;
  const bool wide = isa != cpu::Isa::kAvx2;
  const auto loop = integers ? dot_loop_avx512 : wide ? fma_loop_avx512 : fma_loop_avx2;
  constexpr std::int64_t kCount = 1'000'000;
  std::vector<float> sink(static_cast<std::size_t>(pool.num_threads()));
  const double time = best_seconds([&] {
    pool.run(pool.num_threads(),
             [&](std::int64_t part) { sink[static_cast<std::size_t>(part)] = loop(kCount); });
  });
  return 12.0 * (integers ? 32 : wide ? 16 : 8) * kCount * pool.num_threads() / time;
#else
  return 0;
#endif
}

// What one case is: num_seqs sequences of `context` tokens, of which the last num_queries are computed.
struct Case {
  std::int64_t num_seqs;
  std::int64_t context;
  std::int64_t num_queries;
  std::int64_t num_layers;  // taken one after the other, so that the data come from memory as in a model
};

struct Machine {
  ThreadPool& pool;
  cpu::Isa isa;
  ComputeMode mode;
  std::int64_t block_size;
  bool in_order;
};

// Sequences of equal contents in scattered blocks; one of them in the cache of the reference.
class Bench {
 public:
  Bench(const Shape& shape, DType dtype, const Case& what, const Machine& machine)
      : shape_(shape), what_(what), attention_(machine.isa, machine.mode, machine.pool) {
    rounds_ = attention_.kernels()[dtype].store != nullptr;
    const std::int64_t block_size = machine.block_size;
    blocks_per_seq_ = (what.context + block_size - 1) / block_size;
    KvSpec spec = {what.num_layers,
                   shape.num_kv_heads,
                   shape.head_dim,
                   block_size,
                   blocks_per_seq_ * what.num_seqs,
                   dtype};
    cache_ = std::move(cpu::CpuKvCache::make(spec, &attention_.kernels()[dtype]).value());
    spec.num_layers = 1;
    spec.num_blocks = blocks_per_seq_;
    ref_cache_ = std::move(ref::RefKvCache::make(spec).value());
    tables_.resize(static_cast<std::size_t>(blocks_per_seq_ * what.num_seqs));
    std::iota(tables_.begin(), tables_.end(), 0);
    std::mt19937 random(7);
    if (!machine.in_order) std::shuffle(tables_.begin(), tables_.end(), random);
    std::normal_distribution<float> normal;
    const std::int64_t width = shape.num_kv_heads * shape.head_dim;
    std::vector<float> k(static_cast<std::size_t>(what.context * width));
    std::vector<float> v(k.size());
    for (float& x : k) x = normal(random);
    for (float& x : v) x = normal(random);
    const std::int64_t row = shape.num_heads * shape.head_dim;
    q_.resize(static_cast<std::size_t>(what.num_queries * row));
    for (float& x : q_) x = normal(random);
    const std::vector<float> one = q_;
    for (std::int64_t s = 1; s < what.num_seqs; ++s) q_.insert(q_.end(), one.begin(), one.end());
    out_.resize(q_.size());
    std::vector<std::int32_t> slots(static_cast<std::size_t>(what.context));
    for (std::int64_t s = 0; s < what.num_seqs; ++s) {
      query_starts_.push_back(static_cast<std::int32_t>(s * what.num_queries));
      context_lens_.push_back(static_cast<std::int32_t>(what.context));
      for (std::int64_t p = 0; p < what.context; ++p) {
        const auto place = static_cast<std::size_t>(s * blocks_per_seq_ + p / block_size);
        slots[static_cast<std::size_t>(p)] =
            static_cast<std::int32_t>(tables_[place] * block_size + p % block_size);
      }
      for (std::int64_t layer = 0; layer < what.num_layers; ++layer) {
        cpu::store_kv(machine.isa, machine.pool, *cache_, layer, k.data(), v.data(), what.context,
                      slots.data());
      }
    }
    query_starts_.push_back(static_cast<std::int32_t>(what.num_seqs * what.num_queries));
    for (std::int64_t b = 0; b < blocks_per_seq_; ++b) ref_table_.push_back(static_cast<std::int32_t>(b));
    for (std::int64_t p = 0; p < what.context; ++p) {
      slots[static_cast<std::size_t>(p)] = static_cast<std::int32_t>(p);
    }
    ref::store_kv(*ref_cache_, 0, k.data(), v.data(), what.context, slots.data());
    params_ = {shape.num_heads, 1.0f / std::sqrt(static_cast<float>(shape.head_dim)), 0, 0.0f};
  }
  bool rounds() const { return rounds_; }

  void run(std::int64_t layer) {
    const AttentionShape shape = {what_.num_seqs, query_starts_.data(), context_lens_.data(), tables_.data(),
                                  blocks_per_seq_};
    attention_.run(q_.data(), *cache_, layer, shape, params_, out_.data());
  }
  // The last queries of the last sequence, so that the reference is quick.
  bool check() {
    run(0);
    const std::int64_t row = shape_.num_heads * shape_.head_dim;
    const std::int64_t checked = std::min<std::int64_t>(what_.num_queries, 3);
    const std::int32_t starts[] = {0, static_cast<std::int32_t>(checked)};
    const auto first = static_cast<std::size_t>((what_.num_seqs * what_.num_queries - checked) * row);
    std::vector<float> want(static_cast<std::size_t>(checked * row));
    ref::attention(q_.data() + first, *ref_cache_, 0,
                   {1, starts, context_lens_.data(), ref_table_.data(), blocks_per_seq_}, params_,
                   want.data());
    const float tolerance = rounds_ ? 1e-3f : 1e-5f;
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (!(std::abs(out_[first + i] - want[i]) < tolerance)) {
        std::printf("WRONG: value %zu is %g, not %g\n", i, static_cast<double>(out_[first + i]),
                    static_cast<double>(want[i]));
        return false;
      }
    }
    return true;
  }
  // Seconds per layer.
  double time() {
    return best_seconds([&] {
             for (std::int64_t layer = 0; layer < what_.num_layers; ++layer) run(layer);
           }) /
           static_cast<double>(what_.num_layers);
  }

 private:
  Shape shape_;
  Case what_;
  bool rounds_ = false;
  cpu::Attention attention_;
  std::int64_t blocks_per_seq_ = 0;
  std::unique_ptr<cpu::CpuKvCache> cache_;
  std::unique_ptr<ref::RefKvCache> ref_cache_;
  std::vector<std::int32_t> tables_;  // [num_seqs, blocks_per_seq]
  std::vector<std::int32_t> ref_table_;
  std::vector<std::int32_t> query_starts_;
  std::vector<std::int32_t> context_lens_;
  std::vector<float> q_;
  std::vector<float> out_;
  AttentionParams params_;
};

int run(int argc, char** argv) {
  int num_threads = detect_cpu_budget().num_usable;
  std::string pin;
  std::string only;
  ComputeMode mode = ComputeMode::kBf16;
  std::int64_t block_size = 16;
  bool in_order = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const std::string value = i + 1 < argc ? argv[++i] : "";
    if (flag == "--threads" && std::atoi(value.c_str()) > 0) {
      num_threads = std::atoi(value.c_str());
    } else if (flag == "--isa") {
      pin = value;
    } else if (flag == "--compute" && (value == "f32" || value == "bf16")) {
      mode = value == "f32" ? ComputeMode::kF32 : ComputeMode::kBf16;
    } else if (flag == "--only") {
      only = value;
    } else if (flag == "--in-order") {
      in_order = value == "1";
    } else if (flag == "--block-size" && std::atoi(value.c_str()) > 0) {
      block_size = std::atoi(value.c_str());
    } else {
      std::fprintf(stderr,
                   "usage: bench_attention [--threads N] [--isa NAME] [--compute f32|bf16] [--block-size N] "
                   "[--in-order 1] [--only TEXT]\n");
      return 2;
    }
  }
  const auto choice = cpu::choose_isa(pin);
  if (!choice.ok()) {
    std::fprintf(stderr, "%s\n", choice.error().message.c_str());
    return 2;
  }
  ThreadPool pool(num_threads);
  const Machine machine = {pool, choice->isa, mode, block_size, in_order};
  const double bandwidth = read_bandwidth(pool);
  const DType dtype = mode == ComputeMode::kF32 ? DType::kF32 : DType::kF16;
  for (const std::string& line : cpu::select_attention_kernels(machine.isa, mode).report) {
    std::printf("%s\n", line.c_str());
  }
  double peak = 0;
  for (const Shape& shape : kShapes) {
    const std::string model = std::string(shape.name) + " " + std::string(dtype_name(dtype));
    const auto measure = [&](const std::string& name, const Case& what) {
      if (name.find(only) == std::string::npos) return true;
      Bench bench(shape, dtype, what, machine);
      if (peak == 0) {
        peak = peak_macs(pool, machine.isa, bench.rounds());
        std::printf("%d threads, %s, blocks of %lld %s; this machine: %.1f GB/s read, %.0f GMAC/s\n",
                    num_threads, std::string(cpu::isa_name(machine.isa)).c_str(),
                    static_cast<long long>(block_size), in_order ? "in order" : "scattered", bandwidth / 1e9,
                    peak / 1e9);
      }
      if (!bench.check()) return false;
      const double time = bench.time();
      // Two multiply-adds per value and position that a row sees; each sequence's keys and values once.
      const double rows = static_cast<double>(what.num_seqs * what.num_queries);
      const double seen = static_cast<double>(what.context) - 0.5 * static_cast<double>(what.num_queries - 1);
      const double macs = 2.0 * static_cast<double>(shape.num_heads * shape.head_dim) * rows * seen;
      const double bytes =
          2.0 * static_cast<double>(shape.num_kv_heads * shape.head_dim * what.context * what.num_seqs) *
          static_cast<double>(dtype_bytes(dtype));
      std::printf("%-44s %10.1f us  %6.1f GMAC/s", name.c_str(), time * 1e6, macs / time / 1e9);
      if (peak > 0) std::printf(" (%3.0f%%)", 100 * macs / time / peak);
      std::printf("  %6.2f GB/s (%3.0f%%)\n", bytes / time / 1e9, 100 * bytes / time / bandwidth);
      std::fflush(stdout);
      return true;
    };
    const std::int64_t layer_bytes = 2 * shape.num_kv_heads * shape.head_dim *
                                     static_cast<std::int64_t>(dtype_bytes(dtype));  // per position
    for (const std::int64_t num_seqs : {1, 32}) {
      for (const std::int64_t context : {128, 4096}) {
        // As many layers as make 64 MB.
        const auto num_layers =
            std::clamp<std::int64_t>(64'000'000 / (layer_bytes * context * num_seqs), 1, 512);
        const std::string name =
            model + " decode " + std::to_string(num_seqs) + " x " + std::to_string(context);
        if (!measure(name, {num_seqs, context, 1, num_layers})) return 1;
      }
    }
    for (const std::int64_t prompt : {512, 8192}) {
      if (!measure(model + " prefill " + std::to_string(prompt), {1, prompt, prompt, 1})) return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::run(argc, argv);
}
