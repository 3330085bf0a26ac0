// Purpose: run the parts of one operation on a fixed set of threads with microseconds of delay, and say how
// many CPUs this process may use. Contract: run(n, f) calls f(part) once for each part in [0, n); parts must
// not depend on which thread runs them, nor on how many threads there are (contract of exactness: threads
// split rows, columns or heads, never a sum). Thread: run() is called by one owner thread at a time, not from
// inside a part; the caller works too.
//
// How parts meet threads: thread i begins with the i-th of num_threads equal ranges of parts, in order, so
// that the same call finds the same weights in the same cache (and, first touched by a like call, on the same
// memory node) each time. Whoever is done takes parts from the far end of the others' ranges. run() returns
// when all parts are done, whether or not every thread has looked: one that the system keeps off its CPU
// delays only a part it holds. Idle threads watch for the next call for a moment and then sleep in the
// kernel.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace quire {

// How many of num_cpus a process under a cgroup quota (in CPUs; 0 = none) should compute on: the quota
// rounded, at least 1. Half a CPU more than the threads goes to the rest of the process; half a CPU less
// costs each of them a pause in every period, which is still faster than one thread fewer.
int cpus_under_quota(double quota, int num_cpus);

// CPUs this process may use: the smallest of the affinity mask and the cgroup CPU quota (v1 or v2).
struct CpuBudget {
  int num_online = 1;
  int num_affinity = 1;
  double cgroup_quota = 0;  // CPUs; 0 = none set
  int num_usable = 1;
  std::string reason;  // which of the three decided, for the start-up report
};
CpuBudget detect_cpu_budget();

// A reference to something callable with a part's number; it must outlive the call.
class PartFunction {
 public:
  template <typename F, typename = std::enable_if_t<!std::is_same_v<std::remove_cvref_t<F>, PartFunction>>>
  PartFunction(F&& f)  // NOLINT(google-explicit-constructor): lambdas are passed as they are
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, std::int64_t part) {
          (*static_cast<std::remove_reference_t<F>*>(object))(part);
        }) {}
  void operator()(std::int64_t part) const { call_(object_, part); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t);
};

struct ThreadPoolOptions {
  int num_threads = 1;  // >= 1, the caller of run() included
  // Bind thread i to the i-th of num_threads different CPUs of the affinity mask, different cores first; the
  // caller by pin_caller(). Not done, and the report says so, with fewer CPUs than threads.
  bool pin = false;
  // How long a thread watches for work before it sleeps. Negative = by the machine: 50 us, which spans the
  // gap between two operations of a step; 5 us under a cgroup quota below num_threads, since watching uses it
  // up; none with fewer CPUs than threads, where it would keep the others off.
  std::chrono::nanoseconds spin{-1};
};

class ThreadPool {
 public:
  explicit ThreadPool(const ThreadPoolOptions& options);
  explicit ThreadPool(int num_threads) : ThreadPool(ThreadPoolOptions{num_threads}) {}
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }
  std::chrono::nanoseconds spin() const { return spin_; }
  // CPU of each thread; empty if none is bound.
  const std::vector<int>& cpus() const { return cpus_; }
  // What was decided and why: binding, spinning, memory nodes.
  const std::vector<std::string>& report() const { return report_; }

  // Calls part(i) for every i in [0, num_parts), on all threads; returns when all are done. part must not
  // throw.
  void run(std::int64_t num_parts, PartFunction part);
  // Binds the calling thread to the first CPU if the pool binds at all: for the thread that calls run() most.
  // Threads it starts afterwards inherit that, so it must start none.
  void pin_caller() const;

 private:
  // What is left of one thread's range: the next part in the low half, the end in the high half. A part is
  // taken by compare-and-swap from the front (the owner) or from the end (others). The whole state is in the
  // word, so a late thread can take only a part of the call that is going on: it reads part_ after that, and
  // the call cannot end before the part is done.
  struct alignas(64) Range {
    std::atomic<std::uint64_t> word{0};
  };

  void worker(int index);
  void run_at_once(std::int64_t first, std::uint32_t num_parts, PartFunction part);
  void work(int index);
  void wait_for_parts();

  const int num_threads_;
  std::chrono::nanoseconds spin_;
  std::vector<int> cpus_;
  std::vector<std::string> report_;
  std::unique_ptr<Range[]> ranges_;  // [num_threads]

  // Of the call going on: written by run() before any range, read by whoever took a part.
  const PartFunction* part_ = nullptr;
  std::int64_t first_part_ = 0;

  alignas(64) std::atomic<std::uint32_t> call_{0};  // grows with each run(): what idle threads watch
  std::atomic<std::uint32_t> num_asleep_{0};
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<std::uint32_t> num_left_{0};  // parts not done: what run() waits for
  std::atomic<std::uint32_t> caller_asleep_{0};
  std::vector<std::thread> threads_;
};

}  // namespace quire
