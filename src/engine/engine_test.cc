#include "engine/engine.h"

#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/inbox.h"
#include "engine/sampler.h"
#include "engine/test_model.h"

namespace quire {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// All that one request gave out.
struct Output {
  std::vector<std::int32_t> tokens;
  std::vector<PositionLogprobs> logprobs;
  std::vector<std::optional<PositionLogprobs>> prompt_logprobs;
  std::optional<TokenEvent> last;
};

// Reads a stream until each choice has had its last event.
std::vector<Output> read_all(TokenStream& stream) {
  std::vector<Output> outputs(static_cast<std::size_t>(stream.num_choices()));
  for (std::int32_t num_open = stream.num_choices(); num_open > 0;) {
    std::optional<TokenEvent> event = stream.next(milliseconds(20000));
    if (!event) {
      ADD_FAILURE() << "no event within 20 s";
      return outputs;
    }
    Output& output = outputs.at(static_cast<std::size_t>(event->choice));
    EXPECT_FALSE(output.last) << "an event after the last one";
    if (event->token) output.tokens.push_back(*event->token);
    if (event->logprobs) output.logprobs.push_back(*event->logprobs);
    if (!event->prompt_logprobs.empty()) {
      EXPECT_TRUE(output.prompt_logprobs.empty()) << "prompt logprobs given twice";
      output.prompt_logprobs = event->prompt_logprobs;
    }
    if (event->finish == FinishReason::kNone) continue;
    output.last = std::move(event);
    --num_open;
  }
  EXPECT_FALSE(stream.next(milliseconds(0))) << "an event after the last one";
  return outputs;
}

Output read_one(TokenStream& stream) {
  return read_all(stream).front();
}

TokenRequest make_request(std::vector<std::int32_t> prompt, std::int64_t max_tokens) {
  TokenRequest request;
  request.id = "test";
  request.prompt = std::move(prompt);
  request.eos_ids = {HistoryModel::kEos};
  request.params.temperature = 0;
  request.params.max_tokens = max_tokens;
  request.stream = std::make_shared<TokenStream>();
  return request;
}

std::vector<std::int32_t> random_prompt(std::uint64_t seed, std::size_t length) {
  std::vector<std::int32_t> prompt;
  for (std::size_t i = 0; i < length; ++i) {
    prompt.push_back(static_cast<std::int32_t>(random_bits(seed, i) % 90 + 3));
  }
  return prompt;
}

EngineConfig make_config(std::int64_t num_blocks, std::int64_t block_size) {
  EngineConfig config;
  config.num_blocks = num_blocks;
  config.block_size = block_size;
  config.max_model_len = std::min<std::int64_t>(4096, num_blocks * block_size);
  config.max_num_seqs = 16;
  config.max_num_batched_tokens = 64;
  config.seed = 5;
  config.seed_given = true;
  return config;
}

// A model, an engine and its threads, in the order in which they must go.
struct Server {
  explicit Server(const EngineConfig& config, int num_threads = 1,
                  std::function<void(const StepReport&)> on_step = {})
      : threads(num_threads),
        model(config.num_blocks, config.block_size),
        engine(std::make_unique<Engine>(model, threads, config, std::move(on_step))) {}
  ~Server() {
    engine.reset();
    EXPECT_EQ(model.num_faults.load(), 0) << "batches were inconsistent";
  }
  std::shared_ptr<TokenStream> submit(TokenRequest request) {
    auto stream = request.stream;
    const Status status = engine->submit(std::move(request));
    EXPECT_TRUE(status.ok()) << status.error().message;
    return stream;
  }

  ThreadPool threads;
  HistoryModel model;
  std::unique_ptr<Engine> engine;
};

// ---- Contract of exactness
// ---------------------------------------------------------------------------------

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

// What each must give, without any engine: one forward pass over all tokens per output.
Output expected_output(TokenRequest request, std::int64_t max_model_len) {
  InboxConfig config;
  config.vocab_size = HistoryModel::kVocab;
  config.max_model_len = max_model_len;
  const auto sequence = make_sequence(request, config, 0, {});
  Output output;
  if (sequence->wants_prompt_logprobs()) {
    output.prompt_logprobs.emplace_back();
    for (std::size_t i = 1; i < request.prompt.size(); ++i) {
      const auto logits = HistoryModel::logits_after(std::span(request.prompt).first(i));
      output.prompt_logprobs.emplace_back(
          score_token(logits, request.prompt[i], request.params.num_prompt_logprobs).value());
    }
  }
  output.last.emplace();
  while (sequence->num_known() < sequence->max_known) {
    const auto logits = HistoryModel::logits_after(sequence->tokens);
    const std::int32_t token = choose_token(*sequence, logits).value();
    output.tokens.push_back(token);
    if (request.params.num_logprobs >= 0) {
      output.logprobs.push_back(score_token(logits, token, request.params.num_logprobs).value());
    }
    sequence->tokens.push_back(token);
    if (sequence->wants_penalties()) ++sequence->output_counts[token];
    const auto& stops = request.params.stop_token_ids;
    if ((token == HistoryModel::kEos && !request.params.ignore_eos) ||
        std::find(stops.begin(), stops.end(), token) != stops.end()) {
      output.last->finish = FinishReason::kStop;
      return output;
    }
  }
  output.last->finish = FinishReason::kLength;
  return output;
}

void expect_same(const PositionLogprobs& found, const PositionLogprobs& expected) {
  const auto same = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.token == b.token && a.logprob == b.logprob && a.rank == b.rank;
  };
  EXPECT_TRUE(same(found.chosen, expected.chosen)) << found.chosen.logprob << " " << expected.chosen.logprob;
  ASSERT_EQ(found.top.size(), expected.top.size());
  for (std::size_t i = 0; i < found.top.size(); ++i) EXPECT_TRUE(same(found.top[i], expected.top[i]));
}

void expect_same(const Output& found, const Output& expected) {
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.last->finish, expected.last->finish);
  ASSERT_EQ(found.logprobs.size(), expected.logprobs.size());
  for (std::size_t i = 0; i < found.logprobs.size(); ++i)
    expect_same(found.logprobs[i], expected.logprobs[i]);
  ASSERT_EQ(found.prompt_logprobs.size(), expected.prompt_logprobs.size());
  for (std::size_t i = 0; i < found.prompt_logprobs.size(); ++i) {
    ASSERT_EQ(found.prompt_logprobs[i].has_value(), expected.prompt_logprobs[i].has_value());
    if (found.prompt_logprobs[i]) expect_same(*found.prompt_logprobs[i], *expected.prompt_logprobs[i]);
  }
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

// ---- Requests
// ----------------------------------------------------------------------------------------------

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

// ---- Refusals
// ----------------------------------------------------------------------------------------------

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

// ---- Ends
// --------------------------------------------------------------------------------------------------

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

// ---- Failures
// ----------------------------------------------------------------------------------------------

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
