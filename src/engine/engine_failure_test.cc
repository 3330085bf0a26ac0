// How requests end early: cancelled, drained, failed; and that the engine survives it.
#include <ctime>
#include <future>
#include <latch>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sanitized.h"
#include "engine/engine.h"
#include "engine/engine_test_util.h"

namespace quire {
namespace {

using testing::HasSubstr;

// ---- Ends ----

TEST(Engine, CancelStormsLeaveNothingBehind) {  // CON-01, KVC-08
  EngineConfig config = make_config(60, 4);
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 24;
  Server server(config, 2);
  server.engine->start();
  const TokenRequest anchor = make_request(random_prompt(77, 60), 30);
  const Output quiet = expected_output(anchor, 240);
  std::mt19937 random(3);
  for (int round = 0; round < 12; ++round) {
    TokenRequest anchored = anchor;
    anchored.stream = std::make_shared<TokenStream>();
    auto anchor_stream = server.submit(anchored);
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (int i = 0; i < 30; ++i) {
      TokenRequest request = make_request(random_prompt(random(), 1 + random() % 90), 100);
      request.params.ignore_eos = true;
      streams.push_back(server.submit(request));
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      streams[random() % streams.size()]->cancel_all();
    }
    for (auto& stream : streams) stream->cancel_all();
    for (auto& stream : streams) {
      const FinishReason reason = read_one(*stream).last->finish;  // exactly one last event, checked there
      EXPECT_TRUE(reason == FinishReason::kAbort || reason == FinishReason::kLength);
    }
    EXPECT_EQ(read_one(*anchor_stream).tokens, quiet.tokens);
    const EngineStats stats = server.engine->stats();
    EXPECT_EQ(stats.num_running, 0);
    EXPECT_EQ(stats.num_waiting, 0);
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  }
  EXPECT_GT(server.engine->stats().finished_abort, 100u);
}

// Clients that stay, that cancel, and that go without reading what is left: nothing of them stays.
TEST(Engine, TenThousandRequestsLeaveNothingBehind) {
  constexpr std::uint64_t kRequests = kSanitized ? 1000 : 10000;
  constexpr std::uint64_t kWave = 40;
  EngineConfig config = make_config(48, 4);
  config.max_num_seqs = 8;
  Server server(config);
  server.engine->start();
  std::mt19937 random(11);
  std::vector<std::weak_ptr<TokenStream>> left;
  for (std::uint64_t sent = 0; sent < kRequests; sent += kWave) {
    std::vector<std::shared_ptr<TokenStream>> stay;
    for (std::uint64_t i = 0; i < kWave; ++i) {
      TokenRequest request = make_request(random_prompt(random() % 50, 1 + random() % 40), 1 + random() % 12);
      request.params.ignore_eos = true;
      auto stream = server.submit(std::move(request));
      if (random() % 4 == 0) {
        left.push_back(stream);
        stream->cancel_all();  // as a closed connection does, before it lets go of the stream
        continue;
      }
      stay.push_back(stream);
      if (random() % 3 == 0) stay[random() % stay.size()]->cancel_all();
    }
    for (auto& stream : stay) read_one(*stream);
    const auto busy = [&] {
      const EngineStats now = server.engine->stats();
      return now.finished_stop + now.finished_length + now.finished_abort < sent + kWave;
    };
    while (busy()) std::this_thread::yield();
  }
  const EngineStats stats = server.engine->stats();
  EXPECT_EQ(stats.num_running, 0);
  EXPECT_EQ(stats.num_waiting, 0);
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  server.engine.reset();
  for (const auto& stream : left) EXPECT_TRUE(stream.expired()) << "a stream is held after its end";
  EXPECT_EQ(stats.finished_stop + stats.finished_length + stats.finished_abort, kRequests);
  EXPECT_EQ(stats.finished_error, 0u);
  EXPECT_GT(stats.finished_abort, kRequests / 5);
  EXPECT_GT(stats.finished_length, kRequests / 5);
  EXPECT_GT(stats.num_preemptions, kRequests / 100);
}

TEST(Engine, OneChoiceCanBeCancelledAlone) {
  Server server(make_config(64, 4));
  TokenRequest request = make_request({10, 11}, 8);
  request.params.ignore_eos = true;
  request.stream = std::make_shared<TokenStream>(2);
  std::vector<TokenRequest> choices(2, request);
  choices[1].choice = 1;
  request.stream->cancel(1);  // even before it was submitted
  ASSERT_TRUE(server.engine->submit_all(choices).ok());
  server.engine->start();
  const auto outputs = read_all(*request.stream);
  EXPECT_EQ(outputs[0].last->finish, FinishReason::kLength);
  EXPECT_EQ(outputs[1].last->finish, FinishReason::kAbort);
  EXPECT_TRUE(outputs[1].tokens.empty());
}

TEST(Engine, DrainWaitsForWhatRuns) {  // CON-09
  Server server(make_config(64, 4));
  server.engine->start();
  server.model.before_forward = [](const Batch&, std::int64_t) {
    std::this_thread::sleep_for(milliseconds(2));
  };
  TokenRequest request = make_request({10, 11}, 20);
  request.params.ignore_eos = true;
  auto stream = server.submit(request);
  EXPECT_TRUE(server.engine->drain(milliseconds(20000)));
  const Output output = read_one(*stream);
  EXPECT_EQ(output.tokens.size(), 20u);
  const Status late = server.engine->submit(make_request({10}, 1));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
}

TEST(Engine, DrainAbortsAfterTheDeadline) {
  Server server(make_config(64, 4));
  server.model.before_forward = [](const Batch&, std::int64_t) {
    std::this_thread::sleep_for(milliseconds(5));
  };
  server.engine->start();
  TokenRequest request = make_request({10, 11}, 200);
  request.params.ignore_eos = true;
  auto stream = server.submit(request);
  EXPECT_FALSE(server.engine->drain(milliseconds(30)));
  const Output output = read_one(*stream);
  EXPECT_EQ(output.last->finish, FinishReason::kAbort);
  EXPECT_EQ(server.engine->stats().num_free_blocks, 64);
}

TEST(Engine, DestructionAbortsWhatRunsAndWhatNeverStarted) {
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (const bool starts : {true, false}) {
    Server server(make_config(64, 4));
    TokenRequest request = make_request({10, 11}, 200);
    request.params.ignore_eos = true;
    std::latch running(1);
    server.model.before_forward = [&](const Batch&, std::int64_t step) {
      if (step == 3) running.count_down();
      std::this_thread::sleep_for(milliseconds(1));
    };
    streams.push_back(server.submit(request));
    if (starts) {
      server.engine->start();
      running.wait();
    }
  }
  for (auto& stream : streams) EXPECT_EQ(read_one(*stream).last->finish, FinishReason::kAbort);
}

// ---- Failures ----

TEST(Engine, ANanEndsOnlyItsOwnRequest) {  // CON-07
  Server server(make_config(64, 4));
  TokenRequest good = make_request(random_prompt(1, 10), 8);
  TokenRequest bad = make_request({10, HistoryModel::kPoison, 11}, 8);
  auto good_stream = server.submit(good);
  auto bad_stream = server.submit(bad);
  server.engine->start();
  const Output failed = read_one(*bad_stream);
  EXPECT_EQ(failed.last->finish, FinishReason::kError);
  ASSERT_TRUE(failed.last->error);
  EXPECT_EQ(failed.last->error->code, ErrorCode::kInternal);
  EXPECT_THAT(failed.last->error->message, HasSubstr("NaN"));
  expect_same(read_one(*good_stream), expected_output(good, 256));
  EXPECT_EQ(server.engine->stats().num_free_blocks, 64);
}

TEST(Engine, AThrowingModelFailsItsBatchAndNothingElse) {  // CON-06
  Server server(make_config(64, 4));
  server.model.before_forward = [](const Batch&, std::int64_t step) {
    if (step == 1) throw std::runtime_error("out of luck");
  };
  auto first = server.submit(make_request({10}, 8));
  auto second = server.submit(make_request({11}, 8));
  server.engine->start();
  for (auto& stream : {first, second}) {
    const Output output = read_one(*stream);
    EXPECT_EQ(output.last->finish, FinishReason::kError);
    EXPECT_THAT(output.last->error->message, HasSubstr("out of luck"));
  }
  expect_same(read_one(*server.submit(make_request({12}, 8))), expected_output(make_request({12}, 8), 256));
  const EngineStats stats = server.engine->stats();
  EXPECT_FALSE(stats.failed);
  EXPECT_EQ(stats.finished_error, 2u);
  EXPECT_EQ(stats.num_free_blocks, 64);
}

TEST(Engine, AFailureOfItsOwnEndsAllWithAnError) {
  EngineConfig config = make_config(64, 4);
  config.max_num_seqs = 1;
  Server server(config, 1, [](const StepReport&) { throw std::runtime_error("callback broke"); });
  auto running = server.submit(make_request(random_prompt(5, 10), 8));
  auto waiting = server.submit(make_request({11}, 8));
  server.engine->start();
  for (auto& stream : {running, waiting}) {
    const Output output = read_one(*stream);
    EXPECT_EQ(output.last->finish, FinishReason::kError);
    EXPECT_THAT(output.last->error->message, HasSubstr("callback broke"));
  }
  EXPECT_TRUE(server.engine->stats().failed);
  const Status late = server.engine->submit(make_request({12}, 8));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(late.error().message, HasSubstr("callback broke"));
}

TEST(Engine, AStuckStepShowsInTheStats) {  // CON-06
  Server server(make_config(64, 4));
  std::promise<void> entered;
  std::promise<void> release;
  server.model.before_forward = [&](const Batch&, std::int64_t step) {
    if (step != 0) return;
    entered.set_value();
    release.get_future().wait();
  };
  EXPECT_EQ(server.engine->stats().seconds_since_progress, 0);
  server.engine->start();
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(server.engine->stats().seconds_since_progress, 0) << "idle is not stuck";
  auto stream = server.submit(make_request({10}, 2));
  entered.get_future().wait();
  std::this_thread::sleep_for(milliseconds(40));
  const EngineStats stuck = server.engine->stats();
  EXPECT_GE(stuck.seconds_since_progress, 0.04);
  EXPECT_EQ(stuck.num_running + stuck.num_waiting, 1);
  release.set_value();
  read_one(*stream);
  EXPECT_EQ(server.engine->stats().seconds_since_progress, 0);
}

// An engine without work sleeps: its thread uses no processor time.
TEST(Engine, SleepsWhenIdle) {
  Server server(make_config(64, 4));
  server.engine->start();
  read_one(*server.submit(make_request({10}, 2)));
  std::this_thread::sleep_for(milliseconds(10));
  const std::clock_t before = std::clock();  // of the whole process
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 20);
  EXPECT_EQ(read_one(*server.submit(make_request({11}, 2))).tokens.size(), 2u);
}

TEST(Engine, ManySubmittersAtOnce) {
  EngineConfig config = make_config(32, 4);
  config.max_num_seqs = 4;
  Server server(config, 2);
  server.engine->start();
  std::vector<std::thread> clients;
  for (std::uint64_t c = 0; c < 6; ++c) {
    clients.emplace_back([&server, c] {
      for (std::uint64_t i = 0; i < 10; ++i) {
        const TokenRequest request = make_request(random_prompt(c * 100 + i, 1 + (c + i) % 40), 8);
        auto stream = request.stream;
        ASSERT_TRUE(server.engine->submit(request).ok());
        server.engine->stats();
        expect_same(read_one(*stream), expected_output(request, 128));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(server.engine->stats().num_free_blocks, 32);
}

}  // namespace
}  // namespace quire
