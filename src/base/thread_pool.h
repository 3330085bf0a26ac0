// Purpose: run the parts of one operation on a fixed set of threads, and say how many CPUs this process may
// use. Contract: run(n, f) calls f(part) once for each part in [0, n); parts must not depend on which thread
// runs them, nor on how many threads there are (contract of exactness: threads split rows, columns or heads,
// never a sum). Thread: run() is called by one owner thread at a time; the caller works too.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace quire {

// CPUs this process may use: the smallest of the affinity mask and the cgroup CPU quota (v1 or v2, rounded
// up).
struct CpuBudget {
  int num_online = 1;
  int num_affinity = 1;
  double cgroup_quota = 0;  // CPUs; 0 = none set
  int num_usable = 1;
  std::string reason;  // which of the three decided, for the start-up report
};
CpuBudget detect_cpu_budget();

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);  // >= 1, the caller of run() included
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls part(i) for every i in [0, num_parts), on all threads; returns when all are done. part must not
  // throw.
  void run(std::int64_t num_parts, const std::function<void(std::int64_t)>& part);

 private:
  void worker();
  void work_on_parts();

  const int num_threads_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<std::int64_t> next_part_{0};
  std::atomic<int> num_working_{0};
  std::atomic<bool> stopping_{false};
  std::int64_t num_parts_ = 0;
  const std::function<void(std::int64_t)>* part_ = nullptr;
};

}  // namespace quire
