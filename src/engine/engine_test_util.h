// Purpose: what the engine's tests share: requests, a server of a HistoryModel, and the answer each request
// must get, computed without an engine.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/inbox.h"
#include "engine/sampler.h"
#include "engine/test_model.h"

namespace quire {

using std::chrono::milliseconds;

// All that one request gave out.
struct Output {
  std::vector<std::int32_t> tokens;
  std::vector<PositionLogprobs> logprobs;
  std::vector<std::optional<PositionLogprobs>> prompt_logprobs;
  std::optional<TokenEvent> last;
};

// Reads a stream until each choice has had its last event.
inline std::vector<Output> read_all(TokenStream& stream) {
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

inline Output read_one(TokenStream& stream) {
  return read_all(stream).front();
}

inline TokenRequest make_request(std::vector<std::int32_t> prompt, std::int64_t max_tokens) {
  TokenRequest request;
  request.id = "test";
  request.prompt = std::move(prompt);
  request.eos_ids = {HistoryModel::kEos};
  request.params.temperature = 0;
  request.params.max_tokens = max_tokens;
  request.stream = std::make_shared<TokenStream>();
  return request;
}

inline std::vector<std::int32_t> random_prompt(std::uint64_t seed, std::size_t length) {
  std::vector<std::int32_t> prompt;
  for (std::size_t i = 0; i < length; ++i) {
    prompt.push_back(static_cast<std::int32_t>(random_bits(seed, i) % 90 + 3));
  }
  return prompt;
}

inline EngineConfig make_config(std::int64_t num_blocks, std::int64_t block_size) {
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

// What each must give, without any engine: one forward pass over all tokens per output.
inline Output expected_output(TokenRequest request, std::int64_t max_model_len) {
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

inline void expect_same(const PositionLogprobs& found, const PositionLogprobs& expected) {
  const auto same = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.token == b.token && a.logprob == b.logprob && a.rank == b.rank;
  };
  EXPECT_TRUE(same(found.chosen, expected.chosen)) << found.chosen.logprob << " " << expected.chosen.logprob;
  ASSERT_EQ(found.top.size(), expected.top.size());
  for (std::size_t i = 0; i < found.top.size(); ++i) EXPECT_TRUE(same(found.top[i], expected.top[i]));
}

inline void expect_same(const Output& found, const Output& expected) {
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

}  // namespace quire
