// Measures the linear layers of the `cpu` backend over a file of problems, in every compute mode and tier
// that runs here: bytes of packed weights read per second beside the read bandwidth measured in the same run,
// and multiply-adds per second. Copies of each weight, together larger than the caches, are used in turn, as
// the layers of a model are. Each problem's answer is checked against the reference first.
//   bench_linear [--problems FILE] [--threads N] [--isa NAME] [--mode f32|bf16|int8] [--only TEXT]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <time.h>

#include "backend/cpu/gemm/linear.h"
#include "backend/cpu/isa.h"
#include "backend/ref/ref_linear.h"
#include "backend/testing/linear_problem.h"
#include "base/buffer.h"
#include "base/thread_pool.h"

namespace quire {
namespace {

using testing::LinearProblem;

// Larger than the last-level cache of any machine of the project's kind.
constexpr std::size_t kColdBytes = std::size_t{128} << 20;

// Wall time; on one thread its own CPU time, which other programs on the machine disturb less.
bool use_cpu_time = false;
double seconds_now() {
  timespec now;
  clock_gettime(use_cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Best of several runs of f (seconds).
template <typename F>
double best_seconds(double total_budget, const F& f) {
  double best = 1e30;
  const double end = seconds_now() + total_budget;
  for (int i = 0; i < 3 || seconds_now() < end; ++i) {
    const double start = seconds_now();
    f();
    best = std::min(best, seconds_now() - start);
  }
  return best;
}

double read_bandwidth(ThreadPool& pool) {
  Buffer memory(std::size_t{512} << 20);
  std::memset(memory.data(), 1, memory.size());
  const std::int64_t num_parts = 64;
  const std::size_t words = memory.size() / 8 / static_cast<std::size_t>(num_parts);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(num_parts));
  const double seconds = best_seconds(1.0, [&] {
    pool.run(num_parts, [&](std::int64_t part) {
      const std::uint64_t* from = memory.as<std::uint64_t>() + static_cast<std::size_t>(part) * words;
      // One word of each cache line: the memory is the limit, not the additions.
      std::uint64_t sum[4] = {};
      for (std::size_t i = 0; i < words; i += 32)
        for (std::size_t j = 0; j < 4; ++j) sum[j] += from[i + 8 * j];
      sums[static_cast<std::size_t>(part)] = sum[0] + sum[1] + sum[2] + sum[3];
    });
  });
  return static_cast<double>(memory.size()) / seconds;
}

struct Weights {
  std::vector<std::unique_ptr<PackedWeight>> copies;
  std::unique_ptr<PackedWeight> oracle;
  std::size_t bytes = 0;
  double pack_seconds = 0;
};

Weights make_weights(const LinearProblem& problem, ThreadPool& pool) {
  Weights weights;
  GroupedRows grouped;
  testing::FloatMatrix dense;
  if (problem.grouped) {
    grouped = testing::make_grouped_rows(problem, 1);
    weights.oracle = std::move(ref::pack(grouped)).value();
  } else {
    dense = testing::make_float_rows(problem, 1);
    weights.oracle = std::move(ref::pack(dense.rows)).value();
  }
  for (std::size_t total = 0; total < kColdBytes; total += weights.bytes) {
    const double start = seconds_now();
    auto packed = problem.grouped ? cpu::gemm::pack(grouped, pool) : cpu::gemm::pack(dense.rows, pool);
    weights.pack_seconds = seconds_now() - start;
    weights.copies.push_back(std::move(packed).value());
    weights.bytes = weights.copies.back()->num_bytes();
  }
  return weights;
}

// Largest difference from the reference, relative to the root mean square of the outputs.
double error_of(const std::vector<float>& got, const std::vector<float>& want) {
  double squares = 0;
  double largest = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    squares += static_cast<double>(want[i]) * static_cast<double>(want[i]);
    largest = std::max(largest, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
  }
  return largest / std::sqrt(squares / static_cast<double>(want.size()));
}

int run(int argc, char** argv) {
  std::string file = "bench/linear_problems.txt";
  std::string isa_pin, mode_pin, only;
  int num_threads = detect_cpu_budget().num_usable;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--problems") file = argv[i + 1];
    if (flag == "--threads") num_threads = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--isa") isa_pin = argv[i + 1];
    if (flag == "--mode") mode_pin = argv[i + 1];
    if (flag == "--only") only = argv[i + 1];
  }
  std::ifstream lines(file);
  if (!lines) {
    std::fprintf(stderr, "cannot read %s\n", file.c_str());
    return 1;
  }
  use_cpu_time = num_threads == 1;
  ThreadPool pool(num_threads);
  const double peak = read_bandwidth(pool);
  std::printf("%d threads, read bandwidth %.1f GB/s\n", num_threads, peak / 1e9);
  const cpu::CpuFeatures features = cpu::detect_cpu_features();
  bool all_right = true;
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (line.empty() || line[0] == '#' || colon == std::string::npos) continue;
    if (line.find(only) == std::string::npos) continue;
    const LinearProblem problem = testing::parse_linear_problem(line.substr(0, colon));
    std::vector<std::int64_t> row_counts;
    std::istringstream counts(line.substr(colon + 1));
    for (std::int64_t count; counts >> count;) row_counts.push_back(count);
    const Weights weights = make_weights(problem, pool);
    std::printf("%s: %.1f MB, packed at %.0f million values/s\n", problem.text.c_str(),
                static_cast<double>(weights.bytes) / 1e6,
                static_cast<double>(problem.n * problem.k) / weights.pack_seconds / 1e6);
    const std::int64_t most = *std::max_element(row_counts.begin(), row_counts.end());
    const std::vector<float> x = testing::make_activations(most, problem.k, 2);
    std::vector<float> out(static_cast<std::size_t>(most * problem.n));
    for (const cpu::Isa isa :
         {cpu::Isa::kGeneric, cpu::Isa::kAvx2, cpu::Isa::kAvx512, cpu::Isa::kAvx512Bf16}) {
      const std::string name(cpu::isa_name(isa));
      if (!isa_pin.empty() ? isa_pin != name : isa == cpu::Isa::kGeneric) continue;
      if (!cpu::isa_refusal(isa, features).empty()) {
        std::printf("  %s skipped: %s\n", name.c_str(), cpu::isa_refusal(isa, features).c_str());
        continue;
      }
      for (const ComputeMode mode : {ComputeMode::kF32, ComputeMode::kBf16, ComputeMode::kInt8}) {
        if (!mode_pin.empty() && mode_pin != compute_mode_name(mode)) continue;
        cpu::gemm::Linear linear(isa, mode, {}, pool);
        std::vector<float> want(static_cast<std::size_t>(problem.n));
        std::vector<float> got(want.size());
        const LinearTarget oracle{weights.oracle.get(), nullptr, want.data()};
        const LinearTarget first{weights.copies[0].get(), nullptr, got.data()};
        ref::linear(pool, mode, {x.data(), 1}, {&oracle, 1});
        linear.run({x.data(), 1}, {&first, 1});
        const double error = error_of(got, want);
        all_right = all_right && error < 1e-4;
        std::printf("  %-10s %-4s %s", name.c_str(), std::string(compute_mode_name(mode)).c_str(),
                    error < 1e-4 ? "" : "WRONG ANSWER ");
        for (const std::int64_t num_rows : row_counts) {
          std::size_t next = 0;
          // The median would hide a page fault or two; the best is what the kernel can do.
          const std::size_t calls = num_rows <= 16 ? weights.copies.size() : 1;
          const double seconds =
              best_seconds(0.15,
                           [&] {
                             for (std::size_t call = 0; call < calls; ++call) {
                               const LinearTarget target{weights.copies[next++ % weights.copies.size()].get(),
                                                         nullptr, out.data()};
                               linear.run({x.data(), num_rows}, {&target, 1});
                             }
                           }) /
              static_cast<double>(calls);
          const double bandwidth = static_cast<double>(weights.bytes) / seconds;
          const double macs = static_cast<double>(num_rows * problem.n * problem.k) / seconds;
          std::printf(" | m=%lld %.1f us %.1f GB/s (%.0f%%) %.1f GMAC/s", static_cast<long long>(num_rows),
                      seconds * 1e6, bandwidth / 1e9, 100 * bandwidth / peak, macs / 1e9);
        }
        std::printf("\n");
        std::fflush(stdout);
      }
    }
  }
  return all_right ? 0 : 1;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::run(argc, argv);
}
