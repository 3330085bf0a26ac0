#include "engine/token_stream.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace quire {
namespace {

using std::chrono::milliseconds;

TEST(TokenStream, GivesEventsInOrder) {
  TokenStream stream;
  for (std::int32_t i = 0; i < 3; ++i) {
    TokenEvent event;
    event.token = i;
    stream.push(std::move(event));
  }
  for (std::int32_t i = 0; i < 3; ++i) EXPECT_EQ(stream.next(milliseconds(0))->token, i);
  EXPECT_FALSE(stream.next(milliseconds(0)));
}

TEST(TokenStream, WaitsNoLongerThanAsked) {
  TokenStream stream;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(stream.next(milliseconds(20)));
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(20));
}

TEST(TokenStream, CancelsOneChoiceOrAll) {
  TokenStream stream(3);
  stream.cancel(1);
  EXPECT_FALSE(stream.cancelled(0));
  EXPECT_TRUE(stream.cancelled(1));
  EXPECT_FALSE(stream.cancelled(2));
  stream.cancel_all();
  for (std::int32_t choice = 0; choice < 3; ++choice) EXPECT_TRUE(stream.cancelled(choice));
}

TEST(TokenStream, AWriterWakesItsReader) {
  TokenStream stream;
  constexpr std::int32_t kNumEvents = 2000;
  std::thread writer([&] {
    for (std::int32_t i = 0; i < kNumEvents && !stream.cancelled(0); ++i) {
      TokenEvent event;
      event.token = i;
      stream.push(std::move(event));
    }
  });
  for (std::int32_t i = 0; i < kNumEvents; ++i) {
    const auto event = stream.next(milliseconds::max());  // must not overflow
    ASSERT_TRUE(event);
    ASSERT_EQ(event->token, i);
  }
  writer.join();
}

}  // namespace
}  // namespace quire
