#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <functional>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

namespace quire {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Calls follow each other at once with other functions and other numbers of parts, each function living only
// as long as its call: a thread that comes late and takes a part of an earlier call would be seen here and by
// the sanitizers. Spinning and sleeping threads, fewer and more than CPUs.
TEST(ThreadPool, RunsEveryPartOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    for (const auto spin : {microseconds(0), microseconds(3), microseconds(50)}) {
      ThreadPool pool({threads, false, spin});
      for (int round = 0; round < 200; ++round) {
        std::vector<std::atomic<int>> hits(static_cast<std::size_t>(round));
        const auto count_hit = [&hits](std::int64_t part) {
          hits[static_cast<std::size_t>(part)].fetch_add(1);
        };
        pool.run(round, count_hit);
        for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
      }
    }
  }
}

TEST(CpuBudget, QuotaIsRounded) {
  EXPECT_EQ(cpus_under_quota(0, 16), 16);
  EXPECT_EQ(cpus_under_quota(1.5, 16), 2);
  EXPECT_EQ(cpus_under_quota(1.4, 16), 1);
  EXPECT_EQ(cpus_under_quota(0.3, 16), 1);
  EXPECT_EQ(cpus_under_quota(15.6, 16), 16);
  EXPECT_EQ(cpus_under_quota(1e300, 4), 4);
}

TEST(ThreadPool, TakesAnyCallable) {
  ThreadPool pool(2);
  std::int64_t sum = 0;
  pool.run(0, [&](std::int64_t) { sum = -1; });
  pool.run(-3, [&](std::int64_t) { sum = -1; });
  EXPECT_EQ(sum, 0);
  std::atomic<std::int64_t> total{0};
  const std::function<void(std::int64_t)> add = [&](std::int64_t part) { total += part; };
  pool.run(10, add);
  pool.run(10, PartFunction(add));
  EXPECT_EQ(total.load(), 90);
}

// One thread stays in its part until all other parts are done, those of its own range included: the other
// thread must take them, from its front or from its end.
TEST(ThreadPool, OthersTakeWhatABusyThreadLeaves) {
  for (const auto spin : {microseconds(0), microseconds(50)}) {
    ThreadPool pool({2, false, spin});
    for (const std::int64_t slow : {0, 7, 8, 15}) {
      std::atomic<int> num_others{0};
      bool all_were_done = false;
      pool.run(16, [&](std::int64_t part) {
        if (part != slow) {
          ++num_others;
          return;
        }
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (num_others.load() < 15 && std::chrono::steady_clock::now() < deadline) {
          std::this_thread::sleep_for(microseconds(50));
        }
        all_were_done = num_others.load() == 15;
      });
      EXPECT_TRUE(all_were_done) << slow;
    }
  }
}

TEST(ThreadPool, IdleThreadsSleep) {
  ThreadPool pool({4, false, microseconds(50)});
  std::atomic<int> count{0};
  pool.run(100, [&](std::int64_t) { ++count; });
  std::this_thread::sleep_for(milliseconds(20));
  const std::clock_t before = std::clock();  // CPU time of the process
  std::this_thread::sleep_for(milliseconds(100));
  const double used = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(used, 0.02);
  pool.run(100, [&](std::int64_t) { ++count; });  // and they wake
  EXPECT_EQ(count.load(), 200);
}

TEST(ThreadPool, BindsThreadsToDifferentCpus) {
  const CpuBudget budget = detect_cpu_budget();
  const int threads = std::min(budget.num_affinity, 2);
  std::thread([threads] {  // its own thread: binding the caller lasts
    ThreadPool pool({threads, true});
    ASSERT_EQ(pool.cpus().size(), static_cast<std::size_t>(threads));
    EXPECT_EQ(std::set<int>(pool.cpus().begin(), pool.cpus().end()).size(), pool.cpus().size());
    pool.pin_caller();
    EXPECT_EQ(sched_getcpu(), pool.cpus()[0]);
    const std::set<int> bound(pool.cpus().begin(), pool.cpus().end());
    std::atomic<int> num_elsewhere{0};
    pool.run(200, [&](std::int64_t) { num_elsewhere += bound.count(sched_getcpu()) == 0 ? 1 : 0; });
    EXPECT_EQ(num_elsewhere.load(), 0);
  })
      .join();
  ThreadPool too_many({budget.num_affinity + 1, true});
  EXPECT_TRUE(too_many.cpus().empty());
  EXPECT_EQ(too_many.spin().count(), 0) << "they would keep each other off the CPUs";
  EXPECT_NE(too_many.report().at(0).find("not bound"), std::string::npos);
}

}  // namespace
}  // namespace quire
