// The contract of exactness, what requests give, and what is refused. Ends and failures:
// engine_failure_test.cc.
#include "engine/engine.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_test_util.h"

namespace quire {
namespace {

using testing::HasSubstr;

// ---- Contract of exactness ----

// Sixteen requests that use every parameter; their prompts have 1 to 46 tokens.
std::vector<TokenRequest> mixed_requests() {
  std::vector<TokenRequest> requests;
  for (std::uint64_t i = 0; i < 16; ++i) {
    TokenRequest request = make_request(random_prompt(100 + i, 1 + 3 * i), 24);
    SamplingParams& params = request.params;
    params.seed = 1000 + i;
    params.num_logprobs = static_cast<std::int64_t>(i % 4) - 1;
    if (i % 3 == 0) params.num_prompt_logprobs = static_cast<std::int64_t>(i % 2) * 3;
    if (i % 2 == 1) params.temperature = 0.3 + 0.1 * static_cast<double>(i);
    if (i == 3 || i == 5) params.top_k = 7;
    if (i == 5 || i == 7) params.top_p = 0.8;
    if (i == 9) params.min_p = 0.05;
    if (i == 6 || i == 11) params.repetition_penalty = 1.3;
    if (i == 8 || i == 11) params.presence_penalty = 0.7;
    if (i == 8 || i == 13) params.frequency_penalty = -0.5;
    if (i == 10) params.logit_bias = {{4, 3.5f}, {50, -100.0f}};
    if (i == 12) params.allowed_token_ids = {2, 3, 10, 20, 30, 40, 50};
    if (i == 13) params.bad_words = {{10}, {11, 12}};
    if (i == 14) params.ignore_eos = true;
    if (i == 15) params.stop_token_ids = {20, 21, 22, 23, 24};
    if (i >= 12) params.min_tokens = 12;
    requests.push_back(std::move(request));
  }
  return requests;
}

struct ExactnessCase {
  const char* name;
  std::int64_t num_blocks;
  std::int64_t block_size;
  std::int64_t max_num_seqs;
  std::int64_t max_num_batched_tokens;
  int num_threads;
  bool preempts;
};

class Exactness : public testing::TestWithParam<ExactnessCase> {};

TEST_P(Exactness, ResultsDoNotDependOnTheSchedule) {
  const ExactnessCase& test = GetParam();
  EngineConfig config = make_config(test.num_blocks, test.block_size);
  config.max_num_seqs = test.max_num_seqs;
  config.max_num_batched_tokens = test.max_num_batched_tokens;
  Server server(config, test.num_threads);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (TokenRequest& request : mixed_requests()) streams.push_back(server.submit(std::move(request)));
  server.engine->start();  // after all are in, so that the batch is what the case says
  const std::vector<TokenRequest> requests = mixed_requests();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(read_one(*streams[i]), expected_output(requests[i], server.engine->config().max_model_len));
  }
  const EngineStats stats = server.engine->stats();
  if (test.preempts) {
    EXPECT_GT(stats.num_preemptions, 3u);
  } else {
    EXPECT_EQ(stats.num_preemptions, 0u);
  }
  EXPECT_EQ(stats.num_free_blocks, test.num_blocks);
  EXPECT_EQ(stats.finished_stop + stats.finished_length, 16u);
  std::uint64_t num_prompt_tokens = 0;
  for (const TokenRequest& request : requests) num_prompt_tokens += request.prompt.size();
  EXPECT_EQ(stats.prompt_tokens, num_prompt_tokens);  // those computed again are not counted again
}

// 72 slots are little more than the longest request (46 + 24 tokens) needs alone.
INSTANTIATE_TEST_SUITE_P(Schedules, Exactness,
                         testing::Values(ExactnessCase{"Alone", 64, 16, 1, 2048, 1, false},
                                         ExactnessCase{"BatchOf16", 128, 16, 16, 2048, 1, false},
                                         ExactnessCase{"TwoThreads", 128, 16, 16, 2048, 2, false},
                                         ExactnessCase{"ChunksOf7", 128, 16, 7, 7, 1, false},
                                         ExactnessCase{"ChunksOf1", 128, 16, 1, 1, 1, false},
                                         ExactnessCase{"BlocksOf1", 2000, 1, 16, 64, 2, false},
                                         ExactnessCase{"TinyPool", 18, 4, 16, 2048, 1, true},
                                         ExactnessCase{"TinyPoolChunksOf7ThreeThreads", 36, 2, 7, 7, 3,
                                                       true}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Engine, ManyLargePoolBlocksAreNumberedBeyond16Bits) {
  // KVC-12: one-token blocks with numbers above 65535.
  Server server(make_config(70000, 1));
  server.engine->start();
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (std::uint64_t i = 0; i < 18; ++i) {
    streams.push_back(server.submit(make_request(random_prompt(i, 4000), 2)));
  }
  for (std::uint64_t i = 0; i < 18; ++i) {
    const auto expected = expected_output(make_request(random_prompt(i, 4000), 2), 4096);
    EXPECT_EQ(read_one(*streams[i]).tokens, expected.tokens);
  }
}

// ---- Requests ----

TEST(Engine, ScoresAPromptWithoutGenerating) {
  Server server(make_config(64, 4));
  server.engine->start();
  TokenRequest request = make_request(random_prompt(3, 20), 0);
  request.params.num_prompt_logprobs = 2;
  const Output expected = expected_output(request, 256);
  const Output found = read_one(*server.submit(request));
  expect_same(found, expected);
  EXPECT_EQ(found.prompt_logprobs.size(), 20u);
  EXPECT_FALSE(found.last->token);
}

TEST(Engine, PromptLogprobsOfALongPromptStayWithinTheRowBound) {
  EngineConfig config = make_config(64, 16);
  config.max_num_batched_tokens = 2048;
  Server server(config);
  std::size_t most_rows = 0;
  server.model.before_forward = [&](const Batch& batch, std::int64_t) {
    most_rows = std::max(most_rows, batch.logit_rows.size());
  };
  server.engine->start();
  TokenRequest request = make_request(random_prompt(4, 600), 1);
  request.params.num_prompt_logprobs = 0;
  const Output expected = expected_output(request, 1024);
  expect_same(read_one(*server.submit(request)), expected);
  EXPECT_EQ(server.model.num_forwards.load(), 3);
  EXPECT_EQ(most_rows, 256u);
}

TEST(Engine, StopTokensAreGivenOutAndNamed) {
  Server server(make_config(64, 4));
  server.engine->start();
  TokenRequest request = make_request(random_prompt(8, 5), 30);
  request.params.ignore_eos = true;
  const Output free_run = read_one(*server.submit(request));
  ASSERT_EQ(free_run.tokens.size(), 30u);  // SMP-07: ignore_eos gives exactly max_tokens
  EXPECT_EQ(free_run.last->finish, FinishReason::kLength);
  EXPECT_FALSE(free_run.last->stop_token);

  request.stream = std::make_shared<TokenStream>();
  request.params.stop_token_ids = {free_run.tokens[6]};
  const Output stopped = read_one(*server.submit(request));
  EXPECT_EQ(stopped.last->finish, FinishReason::kStop);
  EXPECT_EQ(stopped.last->stop_token, free_run.tokens[6]);
  EXPECT_EQ(stopped.tokens.back(), free_run.tokens[6]);
  EXPECT_LE(stopped.tokens.size(), 7u);

  request.stream = std::make_shared<TokenStream>();
  request.params.min_tokens = 10;  // the stop id cannot even be chosen before
  const Output longer = read_one(*server.submit(request));
  EXPECT_GE(longer.tokens.size(), 11u);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_NE(longer.tokens[i], free_run.tokens[6]);
}

TEST(Engine, BiasHoldsAtEveryStep) {  // SMP-05
  Server server(make_config(64, 4));
  server.engine->start();
  TokenRequest request = make_request({65}, 4);
  request.params.logit_bias = {{88, 100.0f}};
  const Output output = read_one(*server.submit(request));
  EXPECT_EQ(output.tokens, (std::vector<std::int32_t>{88, 88, 88, 88}));
  EXPECT_EQ(output.last->finish, FinishReason::kLength);
}

TEST(Engine, RequestsWithoutSeedDiffer) {  // SMP-09
  const auto run = [](bool seed_given) {
    EngineConfig config = make_config(128, 4);
    config.seed_given = seed_given;
    Server server(config);
    TokenRequest request = make_request({10, 11, 12}, 12);
    request.params.temperature = 1;
    request.stream = std::make_shared<TokenStream>(4);
    std::vector<TokenRequest> choices(4, request);
    for (std::int32_t i = 0; i < 4; ++i) choices[static_cast<std::size_t>(i)].choice = i;
    EXPECT_TRUE(server.engine->submit_all(choices).ok());
    server.engine->start();
    std::vector<std::vector<std::int32_t>> tokens;
    for (const Output& output : read_all(*request.stream)) tokens.push_back(output.tokens);
    return tokens;
  };
  const auto first = run(true);
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(first[i], first[j]);
  }
  EXPECT_EQ(run(true), first);   // --seed makes a whole run repeatable
  EXPECT_NE(run(false), first);  // entropy does not
}

TEST(Engine, FillsTheTimes) {
  Server server(make_config(64, 4));
  server.model.before_forward = [](const Batch&, std::int64_t) {
    std::this_thread::sleep_for(milliseconds(5));
  };
  auto stream = server.submit(make_request({10, 11}, 4));
  std::this_thread::sleep_for(milliseconds(20));
  server.engine->start();
  const RequestTimes times = read_one(*stream).last->times;
  EXPECT_GE(times.queued, 0.02);
  EXPECT_GE(times.prefill, 0.005);
  EXPECT_GE(times.decode, 0.015);
  EXPECT_EQ(times.preempted, 0);
  EXPECT_EQ(times.num_preemptions, 0);
}

TEST(Engine, ReportsEachStep) {
  std::vector<StepReport> reports;
  {
    Server server(make_config(64, 4), 1, [&](const StepReport& report) { reports.push_back(report); });
    server.engine->start();
    read_one(*server.submit(make_request(random_prompt(1, 70), 3)));
  }
  ASSERT_GE(reports.size(), 2u);
  EXPECT_EQ(reports[0].num_tokens, 64);
  EXPECT_EQ(reports[1].num_tokens, 6);
  EXPECT_EQ(reports[1].num_seqs, 1);
}

// ---- Refusals ----

TEST(Engine, RefusesWhatCanNeverRun) {
  EngineConfig config = make_config(16, 4);
  config.max_model_len = 0;  // the model's 4096, of which the cache holds 64
  Server server(config);
  server.engine->start();
  EXPECT_EQ(server.engine->config().max_model_len, 64);
  const auto refusal = [&](auto change) {
    TokenRequest request = make_request({10, 11}, 4);
    change(request);
    const Status status = server.engine->submit(request);
    if (status.ok()) {
      ADD_FAILURE() << "not refused";
      return Error{};
    }
    EXPECT_FALSE(request.stream->next(milliseconds(0))) << "a refused request gives no event";
    return status.error();
  };
  const Error too_long = refusal([](TokenRequest& r) { r.prompt.assign(64, 9); });
  EXPECT_EQ(too_long.code, ErrorCode::kTooLarge);
  EXPECT_THAT(too_long.message, HasSubstr("64 tokens"));
  EXPECT_EQ(refusal([](TokenRequest& r) { r.prompt.clear(); }).param, "prompt");
  EXPECT_EQ(refusal([](TokenRequest& r) { r.prompt[1] = 97; }).param, "prompt");  // LIM-08
  EXPECT_EQ(refusal([](TokenRequest& r) { r.prompt[1] = -1; }).param, "prompt");
  EXPECT_EQ(refusal([](TokenRequest& r) { r.params.logit_bias = {{97, 1.0f}}; }).param, "logit_bias");
  EXPECT_EQ(refusal([](TokenRequest& r) { r.params.logit_bias = {{1, 101.0f}}; }).param, "logit_bias");
  EXPECT_EQ(refusal([](TokenRequest& r) { r.params.allowed_token_ids = {-1}; }).param, "allowed_token_ids");
  EXPECT_EQ(refusal([](TokenRequest& r) { r.params.bad_words = {{}}; }).param, "bad_words");
  EXPECT_EQ(refusal([](TokenRequest& r) { r.params.temperature = std::nan(""); }).param, "temperature");
  EXPECT_EQ(refusal([](TokenRequest& r) { r.params.top_p = 1.5; }).param, "top_p");
  EXPECT_EQ(refusal([](TokenRequest& r) { r.params.max_tokens = -1; }).param, "max_tokens");
  EXPECT_EQ(read_one(*server.submit(make_request({10}, 2))).last->finish, FinishReason::kLength);
}

TEST(Engine, ClampsTheOutputToTheContext) {  // LIM-02
  Server server(make_config(16, 4));
  server.engine->start();
  TokenRequest request = make_request(random_prompt(2, 58), std::numeric_limits<std::int64_t>::max());
  request.params.ignore_eos = true;
  const Output output = read_one(*server.submit(request));
  EXPECT_EQ(output.tokens.size(), 6u);
  EXPECT_EQ(output.last->finish, FinishReason::kLength);
}

TEST(Engine, RefusesWhatTheQueueCannotHold) {
  EngineConfig config = make_config(64, 4);
  config.max_num_seqs = 2;
  config.max_num_queued_reqs = 3;
  Server server(config);
  std::vector<std::shared_ptr<TokenStream>> streams;
  // Two find places, three wait.
  for (int i = 0; i < 5; ++i) streams.push_back(server.submit(make_request({10}, 4)));
  const Status sixth = server.engine->submit(make_request({10}, 4));
  ASSERT_FALSE(sixth.ok());
  EXPECT_EQ(sixth.error().code, ErrorCode::kOverloaded);
  server.engine->start();
  for (auto& stream : streams) read_one(*stream);
  // All choices of a request or none: six do not fit, five do.
  TokenRequest request = make_request({10}, 4);
  request.stream = std::make_shared<TokenStream>(6);
  std::vector<TokenRequest> choices(6, request);
  for (std::int32_t i = 0; i < 6; ++i) choices[static_cast<std::size_t>(i)].choice = i;
  EXPECT_FALSE(server.engine->submit_all(choices).ok());
  EXPECT_FALSE(request.stream->next(milliseconds(20)));
  EXPECT_EQ(server.engine->stats().finished_length + server.engine->stats().finished_stop, 5u);
}

}  // namespace
}  // namespace quire
