#include "backend/cpu/peaks/peaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>

#include "backend/cpu/peaks/peaks_kernel.h"
#include "base/buffer.h"
#include "base/check.h"

#if defined(__linux__)
#include <sched.h>
#endif

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quire::cpu::peaks {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

const MacKernel& kernel_of(const PeakTable& table, Operand operand) {
  return operand == Operand::kF32 ? table.f32 : operand == Operand::kBf16 ? table.bf16 : table.int8;
}

struct Table {
  const char* isa;
  const PeakTable* kernels;
  bool runs;
};

std::vector<Table> tables() {
  std::vector<Table> out = {{"generic", &kPeaksGeneric, true}};
#if defined(__x86_64__)
  const CpuFeatures features = detect_cpu_features();
  out.push_back({"avx2", &kPeaksAvx2, isa_refusal(Isa::kAvx2, features).empty()});
  out.push_back({"avx512", &kPeaksAvx512, isa_refusal(Isa::kAvx512, features).empty()});
  out.push_back({"avx512bf16", &kPeaksAvx512Bf16, isa_refusal(Isa::kAvx512Bf16, features).empty()});
  out.push_back({"amx", &kPeaksAmx, amx_refusal().empty()});
#endif
  return out;
}

// The CPUs that this process may run on.
std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
#endif
  return cpus;
}

// Binds the calling thread to one CPU; if the system refuses, it stays where it is.
void bind_to(int cpu) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  ::sched_setaffinity(0, sizeof set, &set);
#endif
}

// Threads that all start together, each on a CPU of its own where there are enough.
class Crew {
 public:
  explicit Crew(int num_threads) : num_threads_(num_threads), starts_(size()), ends_(size()) {
    QUIRE_CHECK_GE(num_threads, 1);
  }
  // The shortest time in which all threads have called work(thread) once, over at least three rounds and
  // about `seconds` in all.
  double best_round(double seconds, const std::function<void(int)>& work) {
    double best = 1e30;
    std::atomic<int> num_arrived{0};
    std::atomic<bool> stops{false};
    const auto body = [&](int thread) {
      const auto own = static_cast<std::size_t>(thread);
      if (size() <= cpus_.size()) bind_to(cpus_[own]);
      double total = 0;
      for (int round = 0; !stops.load(); ++round) {
        meet(&num_arrived, 3 * round + 1);
        starts_[own] = Clock::now();
        work(thread);
        ends_[own] = Clock::now();
        meet(&num_arrived, 3 * round + 2);
        if (thread == 0) {
          const double time = std::chrono::duration<double>(*std::max_element(ends_.begin(), ends_.end()) -
                                                            *std::min_element(starts_.begin(), starts_.end()))
                                  .count();
          best = std::min(best, time);
          total += time;
          stops = round >= 2 && total >= seconds;
        }
        meet(&num_arrived, 3 * round + 3);
      }
    };
    std::vector<std::thread> threads;
    for (int thread = 0; thread < num_threads_; ++thread) threads.emplace_back(body, thread);
    for (std::thread& thread : threads) thread.join();
    return best;
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(num_threads_); }
  // Waits until all threads have come here for the nth time.
  void meet(std::atomic<int>* num_arrived, int nth) const {
    num_arrived->fetch_add(1);
    while (num_arrived->load() < nth * num_threads_) std::this_thread::yield();
  }

  const int num_threads_;
  const std::vector<int> cpus_ = allowed_cpus();
  std::vector<Clock::time_point> starts_;
  std::vector<Clock::time_point> ends_;
};

}  // namespace

std::string_view operand_name(Operand operand) {
  return operand == Operand::kF32 ? "f32" : operand == Operand::kBf16 ? "bf16" : "int8";
}

// Bit positions: Intel SDM volume 2A, CPUID leaf 7.0; XCR0: volume 1, 13.3. The permission: Linux,
// Documentation/arch/x86/xstate.rst.
std::string amx_refusal() {
#if defined(__x86_64__)
  static const std::string refusal = [] {
    std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return "this machine lacks AMX";
    const std::uint32_t needed = 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
    if ((edx & needed) != needed) return "this machine lacks AMX";
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & (1u << 27)) == 0) return "XSAVE is off";
    std::uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 0x60000u) != 0x60000u) return "the operating system does not save the tiles";
    constexpr long kArchReqXcompPerm = 0x1023;
    constexpr long kXfeatureXtiledata = 18;
    if (::syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) != 0) {
      return "the kernel refused the tile state";
    }
    return "";
  }();
  return refusal;
#else
  return "this machine lacks AMX";
#endif
}

std::vector<Unit> units() {
  std::vector<Unit> out;
  for (const Table& table : tables()) {
    if (!table.runs) continue;
    for (const Operand operand : {Operand::kF32, Operand::kBf16, Operand::kInt8}) {
      const MacKernel& kernel = kernel_of(*table.kernels, operand);
      if (kernel.run != nullptr) out.push_back({operand, table.isa, kernel.instruction});
    }
  }
  return out;
}

double measure_macs(const Unit& unit, int num_threads, double seconds) {
  for (const Table& table : tables()) {
    if (unit.isa != table.isa) continue;
    const MacKernel& kernel = kernel_of(*table.kernels, unit.operand);
    QUIRE_CHECK(table.runs && kernel.run != nullptr) << unit.isa << " " << unit.instruction;
    // A round of some milliseconds: long beside the start of threads, short beside interruptions.
    std::int64_t count = 1000;
    for (;; count *= 4) {
      const Clock::time_point start = Clock::now();
      kernel.run(count);
      if (seconds_since(start) > 2e-3) break;
    }
    const double time = Crew(num_threads).best_round(seconds, [&](int) { kernel.run(count); });
    return kernel.macs_per_round * static_cast<double>(count) * num_threads / time;
  }
  QUIRE_CHECK(false) << "no unit " << unit.isa;
  return 0;
}

double measure_read_bandwidth(int num_threads, double seconds) {
  // Larger than the last-level caches of the project's machines, in all and for each thread.
  const std::size_t part = std::max<std::size_t>(
      std::size_t{64} << 20, (std::size_t{256} << 20) / static_cast<std::size_t>(num_threads));
  std::vector<Buffer> memory(static_cast<std::size_t>(num_threads));
  std::atomic<std::uint64_t> sink{0};
  // Each thread touches its own part first, so that it lies in the memory nearest to some thread like it.
  Crew crew(num_threads);
  crew.best_round(0, [&](int thread) {
    Buffer& own = memory[static_cast<std::size_t>(thread)];
    if (own.size() != 0) return;
    own = Buffer(part);
    std::memset(own.data(), thread + 1, part);
  });
  double best = 0;
  for (const Table& table : tables()) {
    if (!table.runs || table.kernels->read == nullptr) continue;
    const double time = crew.best_round(seconds / 3, [&](int thread) {
      sink ^= table.kernels->read(memory[static_cast<std::size_t>(thread)].data(), part);
    });
    best = std::max(best, static_cast<double>(part) * num_threads / time);
  }
  return best;
}

Unit unit_for(Isa isa, ComputeMode mode, bool with_amx) {
  const Operand operand = mode == ComputeMode::kF32    ? Operand::kF32
                          : mode == ComputeMode::kBf16 ? Operand::kBf16
                                                       : Operand::kInt8;
  const auto allowed = [&](const Unit& unit) {
    if (unit.isa == "amx") return with_amx;
    for (const Isa tier : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
      if (unit.isa == isa_name(tier)) return tier <= isa;
    }
    return false;
  };
  Unit chosen;
  for (const Operand wanted : {Operand::kF32, operand}) {  // the latter, if there is one
    for (const Unit& unit : units()) {
      if (unit.operand == wanted && allowed(unit)) chosen = unit;
    }
  }
  return chosen;
}

}  // namespace quire::cpu::peaks
