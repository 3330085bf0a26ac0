#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <sstream>

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quire {
namespace {

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// The quota of one cgroup folder in CPUs, or 0 if it sets none.
double quota_of(const std::string& folder) {
  if (std::ifstream v2(folder + "/cpu.max"); v2) {
    std::string quota;
    double period = 0;
    if (v2 >> quota >> period && quota != "max" && period > 0) return std::atof(quota.c_str()) / period;
    return 0;
  }
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) return quota / period;
  return 0;
}

// The tightest quota on the path from this process's cgroup up to the root (cgroups(7): a parent limits its
// children).
double cgroup_cpu_quota() {
  double tightest = 0;
  auto take = [&](double quota) {
    if (quota > 0 && (tightest == 0 || quota < tightest)) tightest = quota;
  };
  std::ifstream self("/proc/self/cgroup");
  for (std::string line; std::getline(self, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string root;
    if (controllers.empty()) {
      root = "/sys/fs/cgroup";
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      root = "/sys/fs/cgroup/cpu";
    } else {
      continue;
    }
    std::string path = line.substr(second + 1);
    for (;;) {
      take(quota_of(root + path));
      const auto slash = path.find_last_of('/');
      if (slash == std::string::npos || path.size() <= 1) break;
      path.resize(slash);
    }
    take(quota_of(root));
  }
  return tightest;
}

}  // namespace

CpuBudget detect_cpu_budget() {
  CpuBudget budget;
  budget.num_online = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  budget.num_affinity = budget.num_online;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) budget.num_affinity = std::max(1, CPU_COUNT(&mask));
  budget.cgroup_quota = cgroup_cpu_quota();
  budget.num_usable = std::min(budget.num_online, budget.num_affinity);
  budget.reason = budget.num_affinity < budget.num_online ? "affinity mask" : "online CPUs";
  if (budget.cgroup_quota > 0) {
    const int from_quota = std::max(1, static_cast<int>(std::ceil(budget.cgroup_quota)));
    if (from_quota < budget.num_usable) {
      budget.num_usable = from_quota;
      budget.reason = fmt::format("cgroup quota of {:.2f} CPUs", budget.cgroup_quota);
    }
  }
  return budget;
}

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads) {
  QUIRE_CHECK_GE(num_threads, 1);
  for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this] { worker(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_.store(true);
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::work_on_parts() {
  for (;;) {
    const std::int64_t part = next_part_.fetch_add(1, std::memory_order_relaxed);
    if (part >= num_parts_) return;
    (*part_)(part);
  }
}

void ThreadPool::worker() {
  std::uint64_t seen = 0;
  for (;;) {
    // The ops of one step follow each other within microseconds: spin that long, then sleep.
    const auto spin_until = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
    while (generation_.load(std::memory_order_acquire) == seen &&
           std::chrono::steady_clock::now() < spin_until) {
      for (int i = 0; i < 16; ++i) pause_cpu();
    }
    if (generation_.load(std::memory_order_acquire) == seen) {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
    }
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    work_on_parts();
    num_working_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::run(std::int64_t num_parts, const std::function<void(std::int64_t)>& part) {
  if (num_parts <= 0) return;
  if (threads_.empty() || num_parts == 1) {
    for (std::int64_t i = 0; i < num_parts; ++i) part(i);
    return;
  }
  part_ = &part;
  num_parts_ = num_parts;
  next_part_.store(0, std::memory_order_relaxed);
  num_working_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  work_on_parts();
  for (int spins = 0; num_working_.load(std::memory_order_acquire) != 0; ++spins) {
    pause_cpu();
    // With fewer CPUs than threads, spinning would keep the worker off its CPU.
    if (spins > 2000) std::this_thread::yield();
  }
}

}  // namespace quire
