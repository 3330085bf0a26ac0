#include "base/thread_pool.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quire {
namespace {

// The operations of one step follow each other within microseconds, so idle threads watch that long.
constexpr std::chrono::microseconds kSpin{50};
constexpr std::chrono::microseconds kSpinUnderQuota{5};
// The caller waits longer than that for the last parts before it sleeps: the others are at work on them.
constexpr int kCallerPatience = 10;

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// True as soon as done() is, false after `spin`.
template <typename Done>
bool spin_until(std::chrono::nanoseconds spin, Done done) {
  if (done()) return true;
  if (spin.count() == 0) return false;
  const auto end = std::chrono::steady_clock::now() + spin;
  do {
    for (int i = 0; i < 16; ++i) {
      pause_cpu();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// Sleeps while the word has this value; may return early. futex(2).
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  static_assert(sizeof(word) == 4);
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<std::uint32_t>& word, int num_threads) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, num_threads, nullptr, nullptr, 0);
}

constexpr std::uint64_t kOneFromEnd = std::uint64_t{1} << 32;
constexpr std::uint32_t next_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(word);
}
constexpr std::uint32_t end_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}

// In ascending order; empty if the system does not say.
std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

void pin_to(int cpu) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(cpu, &mask);
  sched_setaffinity(0, sizeof(mask), &mask);  // if refused (a cpuset shrank meanwhile), the thread stays free
}

// The numbers of a list such as "0-3,8" (the format of /sys/devices/system); empty if there is no such file.
std::vector<int> read_number_list(const std::string& path) {
  std::vector<int> numbers;
  std::ifstream file(path);
  for (std::string range; std::getline(file, range, ',');) {
    int first = 0;
    int last = 0;
    const int num_read = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    if (num_read < 1) break;
    for (int i = first; i <= (num_read == 2 ? last : first); ++i) numbers.push_back(i);
  }
  return numbers;
}

// One CPU of each core before the second ones: two threads on one core would share its vector units. Begins
// where this thread runs, so that two processes with a few threads each need not meet.
std::vector<int> cpus_by_core(const std::vector<int>& cpus) {
  std::vector<int> first_ones;
  std::vector<int> others;
  std::vector<int> cores_seen;
  const int here = sched_getcpu();
  std::size_t begin = 0;
  for (const int cpu : cpus) {
    const std::vector<int> siblings =
        read_number_list(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    const int core = siblings.empty() ? cpu : siblings.front();
    const bool is_seen = std::find(cores_seen.begin(), cores_seen.end(), core) != cores_seen.end();
    if (!is_seen) {
      cores_seen.push_back(core);
      if (cpu == here || std::find(siblings.begin(), siblings.end(), here) != siblings.end()) {
        begin = first_ones.size();
      }
    }
    (is_seen ? others : first_ones).push_back(cpu);
  }
  std::rotate(first_ones.begin(), first_ones.begin() + static_cast<std::ptrdiff_t>(begin), first_ones.end());
  first_ones.insert(first_ones.end(), others.begin(), others.end());
  return first_ones;
}

int num_memory_nodes() {
  return static_cast<int>(read_number_list("/sys/devices/system/node/has_memory").size());
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

int cpus_under_quota(double quota, int num_cpus) {
  if (quota <= 0 || quota >= num_cpus) return num_cpus;
  return std::max(1, static_cast<int>(std::lround(quota)));
}

CpuBudget detect_cpu_budget() {
  CpuBudget budget;
  budget.num_online = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  const std::vector<int> allowed = allowed_cpus();
  budget.num_affinity = allowed.empty() ? budget.num_online : static_cast<int>(allowed.size());
  budget.cgroup_quota = cgroup_cpu_quota();
  budget.num_usable = std::min(budget.num_online, budget.num_affinity);
  budget.reason = budget.num_affinity < budget.num_online ? "affinity mask" : "online CPUs";
  const int from_quota = cpus_under_quota(budget.cgroup_quota, budget.num_usable);
  if (from_quota < budget.num_usable) {
    budget.num_usable = from_quota;
    budget.reason = fmt::format("cgroup quota of {:.2f} CPUs", budget.cgroup_quota);
  }
  return budget;
}

ThreadPool::ThreadPool(const ThreadPoolOptions& options)
    : num_threads_(options.num_threads),
      spin_(options.spin),
      ranges_(std::make_unique<Range[]>(static_cast<std::size_t>(std::max(1, options.num_threads)))) {
  QUIRE_CHECK_GE(num_threads_, 1);
  const std::vector<int> cpus = allowed_cpus();
  const int num_cpus = std::max(1, static_cast<int>(cpus.size()));
  if (options.pin) {
    if (num_threads_ <= num_cpus) {
      cpus_ = cpus_by_core(cpus);
      cpus_.resize(static_cast<std::size_t>(num_threads_));
      report_.push_back(fmt::format("threads bound to CPUs {}", fmt::join(cpus_, ", ")));
    } else {
      report_.push_back(fmt::format("threads not bound: {} of them for {} CPUs", num_threads_, num_cpus));
    }
  }
  const double quota = cgroup_cpu_quota();
  std::string why;
  if (spin_.count() < 0) {
    if (num_threads_ > num_cpus) {
      spin_ = std::chrono::nanoseconds(0);
      why = fmt::format(" ({} CPUs for {} threads)", num_cpus, num_threads_);
    } else if (quota > 0 && quota < num_threads_) {
      spin_ = kSpinUnderQuota;
      why = fmt::format(" (cgroup quota of {:.2f} CPUs)", quota);
    } else {
      spin_ = kSpin;
    }
  }
  if (num_threads_ > 1) {
    report_.push_back(fmt::format("idle threads watch for {} us, then sleep{}", spin_.count() / 1000, why));
  }
  if (const int nodes = num_memory_nodes(); nodes > 1) {
    report_.push_back(fmt::format(
        "{} memory nodes: packed weights are first written, so placed, by the threads that compute with "
        "them; an "
        "engine file lies where the system's file cache put it{}",
        nodes, cpus_.empty() ? "; threads may move between nodes unless --threads binds them" : ""));
  }
  for (int i = 1; i < num_threads_; ++i) threads_.emplace_back([this, i] { worker(i); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  call_.fetch_add(1);
  futex_wake(call_, INT_MAX);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::pin_caller() const {
  if (!cpus_.empty()) pin_to(cpus_[0]);
}

void ThreadPool::work(int index) {
  std::uint32_t num_done = 0;
  const auto do_part = [&](std::uint32_t part) {
    (*part_)(first_part_ + part);
    ++num_done;
  };
  std::atomic<std::uint64_t>& own = ranges_[static_cast<std::size_t>(index)].word;
  for (std::uint64_t word = own.load(std::memory_order_relaxed); next_of(word) < end_of(word);) {
    if (!own.compare_exchange_weak(word, word + 1, std::memory_order_acquire, std::memory_order_relaxed))
      continue;
    do_part(next_of(word));
    word = own.load(std::memory_order_relaxed);
  }
  for (int i = 1; i < num_threads_; ++i) {
    std::atomic<std::uint64_t>& other = ranges_[static_cast<std::size_t>((index + i) % num_threads_)].word;
    for (std::uint64_t word = other.load(std::memory_order_relaxed); next_of(word) < end_of(word);) {
      const std::uint64_t rest = word - kOneFromEnd;
      if (!other.compare_exchange_weak(word, rest, std::memory_order_acquire, std::memory_order_relaxed))
        continue;
      do_part(end_of(rest));
      word = other.load(std::memory_order_relaxed);
    }
  }
  if (num_done == 0) return;
  // Sequentially consistent with caller_asleep_: either the caller sees the zero or this thread sees it
  // asleep.
  if (num_left_.fetch_sub(num_done) == num_done && caller_asleep_.load() != 0) futex_wake(num_left_, 1);
}

void ThreadPool::worker(int index) {
  if (!cpus_.empty()) pin_to(cpus_[static_cast<std::size_t>(index)]);
  std::uint32_t seen = 0;
  for (;;) {
    if (!spin_until(spin_, [&] { return call_.load(std::memory_order_acquire) != seen; })) {
      // Sequentially consistent with run(): either it sees this thread asleep or this thread sees the new
      // call.
      num_asleep_.fetch_add(1);
      while (call_.load() == seen) futex_wait(call_, seen);
      num_asleep_.fetch_sub(1);
    }
    seen = call_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    work(index);
  }
}

void ThreadPool::wait_for_parts() {
  // Parts are short: the wait is for one that has begun, or for a thread that lost its CPU, which then needs
  // this one.
  if (spin_until(kCallerPatience * spin_, [&] { return num_left_.load(std::memory_order_acquire) == 0; }))
    return;
  caller_asleep_.store(1);
  for (std::uint32_t left = num_left_.load(); left != 0; left = num_left_.load()) futex_wait(num_left_, left);
  caller_asleep_.store(0, std::memory_order_relaxed);
}

void ThreadPool::run_at_once(std::int64_t first, std::uint32_t num_parts, PartFunction part) {
  part_ = &part;
  first_part_ = first;
  num_left_.store(num_parts, std::memory_order_relaxed);
  const auto num_ranges = std::min(static_cast<std::uint32_t>(num_threads_), num_parts);
  std::uint64_t begin = 0;
  for (std::uint32_t i = 0; i < num_ranges; ++i) {
    const std::uint64_t end = std::uint64_t{num_parts} * (i + 1) / num_ranges;
    ranges_[i].word.store(end << 32 | begin, std::memory_order_release);
    begin = end;
  }
  call_.fetch_add(1);
  const std::uint32_t num_asleep = num_asleep_.load();
  if (num_asleep > 0) futex_wake(call_, static_cast<int>(std::min(num_asleep, num_ranges - 1)));
  work(0);
  wait_for_parts();
}

void ThreadPool::run(std::int64_t num_parts, PartFunction part) {
  if (threads_.empty() || num_parts == 1) {
    for (std::int64_t i = 0; i < num_parts; ++i) part(i);
    return;
  }
  constexpr std::int64_t kMostParts = INT32_MAX;
  for (std::int64_t first = 0; first < num_parts; first += kMostParts) {
    run_at_once(first, static_cast<std::uint32_t>(std::min(kMostParts, num_parts - first)), part);
  }
}

}  // namespace quire
