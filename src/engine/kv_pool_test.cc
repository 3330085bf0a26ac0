#include "engine/kv_pool.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(KvPool, GivesEachBlockOnce) {
  KvPool pool(5, 16);
  std::set<std::int32_t> taken;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(pool.num_free(), 5 - i);
    taken.insert(pool.take());
  }
  EXPECT_EQ(taken, (std::set<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(KvPool, RoundsTokensUpToBlocks) {
  KvPool pool(5, 16);
  EXPECT_EQ(pool.blocks_for(0), 0);
  EXPECT_EQ(pool.blocks_for(1), 1);
  EXPECT_EQ(pool.blocks_for(16), 1);
  EXPECT_EQ(pool.blocks_for(17), 2);
}

TEST(KvPool, GivesTheLongestFreeBlockFirst) {
  KvPool pool(4, 1);
  std::vector<std::int32_t> blocks{pool.take(), pool.take(), pool.take()};  // 3 stays free
  EXPECT_EQ(blocks, (std::vector<std::int32_t>{0, 1, 2}));
  pool.release(1);
  pool.release(0);
  EXPECT_EQ(pool.take(), 3);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 0);
}

TEST(KvPool, ReleasesTheEndOfAContextFirst) {
  KvPool pool(3, 1);
  std::vector<std::int32_t> blocks{pool.take(), pool.take(), pool.take()};
  pool.release_all(blocks);
  EXPECT_TRUE(blocks.empty());
  EXPECT_EQ(pool.take(), 2);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 0);
}

TEST(KvPool, SharedBlocksAreFreeAfterTheLastRelease) {
  KvPool pool(2, 1);
  const std::int32_t block = pool.take();
  pool.share(block);
  EXPECT_EQ(pool.num_references(block), 2);
  pool.release(block);
  EXPECT_EQ(pool.num_free(), 1);
  pool.release(block);
  EXPECT_EQ(pool.num_references(block), 0);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(KvPool, AFreeBlockCanBeCalledBackFromTheMiddle) {
  KvPool pool(4, 1);
  pool.share(2);  // what a prefix hit does
  EXPECT_EQ(pool.num_references(2), 1);
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 3);
}

TEST(KvPool, CountsHoldUnderRandomUse) {
  KvPool pool(17, 4);
  std::mt19937 random(1);
  std::vector<std::int32_t> references;  // one entry per reference held
  for (int i = 0; i < 20000; ++i) {
    const auto action = random() % 3;
    if (action == 0 && pool.num_free() > 0) {
      const std::int32_t block = pool.take();
      ASSERT_EQ(std::count(references.begin(), references.end(), block), 0);
      references.push_back(block);
    } else if (action == 1 && !references.empty()) {
      pool.share(references.emplace_back(references[random() % references.size()]));
    } else if (!references.empty()) {
      std::swap(references[random() % references.size()], references.back());
      pool.release(references.back());
      references.pop_back();
    }
    const std::set<std::int32_t> held(references.begin(), references.end());
    ASSERT_EQ(pool.num_free(), 17 - static_cast<std::int64_t>(held.size()));
  }
}

// Writes down what it is told.
class RecordingObserver final : public BlockObserver {
 public:
  void on_taken(std::int32_t block) override { events.push_back("taken " + std::to_string(block)); }
  void on_freed(std::int32_t block) override { events.push_back("freed " + std::to_string(block)); }
  void on_called_back(std::int32_t block) override { events.push_back("back " + std::to_string(block)); }
  std::vector<std::string> events;
};

TEST(KvPool, TellsTheObserverWhenABlockIsTakenFreedAndCalledBack) {
  KvPool pool(2, 1);
  RecordingObserver observer;
  pool.set_observer(&observer);
  const std::int32_t block = pool.take();
  pool.share(block);    // used twice: says nothing of the block's content
  pool.release(block);  // nor does this
  pool.release(block);
  pool.share(block);
  pool.release(block);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(observer.events,
            (std::vector<std::string>{"taken 0", "freed 0", "back 0", "freed 0", "taken 1"}));
  pool.set_observer(nullptr);
  pool.release(1);
  EXPECT_EQ(observer.events.size(), 5u);
}

using KvPoolDeathTest = testing::Test;

TEST(KvPoolDeathTest, StopsOnMisuse) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  KvPool pool(2, 1);
  const std::int32_t block = pool.take();
  pool.release(block);
  EXPECT_DEATH(pool.release(block), "free already");
  EXPECT_DEATH(pool.release(2), "CHECK failed");
  EXPECT_DEATH(pool.share(-1), "CHECK failed");
  EXPECT_DEATH(
      {
        pool.take();
        pool.take();
        pool.take();
      },
      "no free block");
  EXPECT_DEATH(KvPool(std::int64_t{1} << 30, 4), "CHECK failed");  // slots would not fit in int32
}

}  // namespace
}  // namespace quire
