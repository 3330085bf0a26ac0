// Streaming eviction in the engine: lengths beyond the pool, exactness under load, refusals.
#include "engine/kv_eviction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_test_util.h"

namespace quire {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kBlockSize = 4;
constexpr KvEviction kStreaming = {KvEvictionPolicy::kStreaming, 3, 10};

TokenRequest streaming_request(std::uint64_t seed, std::size_t num_prompt, std::int64_t max_tokens) {
  TokenRequest request = make_request(random_prompt(seed, num_prompt), max_tokens);
  request.eviction = kStreaming;
  request.params.ignore_eos = true;
  request.params.num_logprobs = 0;
  return request;
}

// What HistoryModel says when it sees the sinks and the window only, one token after the other.
std::vector<std::int32_t> expected_tokens(const TokenRequest& request) {
  std::vector<std::int32_t> known = request.prompt;
  for (std::int64_t i = 0; i < request.params.max_tokens; ++i) {
    const auto length = static_cast<std::int64_t>(known.size());
    std::vector<std::int32_t> seen;
    for (std::int64_t p = 0; p < length; ++p) {
      if (p < kStreaming.sinks || p >= length - kStreaming.window) {
        seen.push_back(known[static_cast<std::size_t>(p)]);
      }
    }
    const auto logits = HistoryModel::logits_after(seen);
    known.push_back(
        static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return {known.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()), known.end()};
}

TEST(KvEviction, GenerationAndPromptRunInAFixedPool) {
  // One block of sinks, ten positions in at most four, one to spare: 24 tokens of memory.
  Server server(make_config(6, kBlockSize));
  server.engine->start();
  for (const std::size_t num_prompt : {1u, 23u, 24u, 25u, 300u}) {
    const TokenRequest request = streaming_request(7, num_prompt, 500);
    const std::vector<std::int32_t> want = expected_tokens(request);
    EXPECT_EQ(read_one(*server.submit(request)).tokens, want) << num_prompt;
  }
  EXPECT_EQ(server.engine->stats().num_free_blocks, 6);
  EXPECT_EQ(server.engine->stats().num_preemptions, 0u);
}

TEST(KvEviction, TwentyThousandTokensInAFixedPool) {
  Server server(make_config(6, kBlockSize));
  server.engine->start();
  const Output output = read_one(*server.submit(streaming_request(8, 5, 20000)));
  EXPECT_EQ(output.tokens.size(), 20000u);
  EXPECT_EQ(output.last->finish, FinishReason::kLength);
  EXPECT_EQ(server.engine->stats().num_free_blocks, 6);
}

TEST(KvEviction, SameAnswersUnderPreemptionBesideOthers) {
  EngineConfig config = make_config(20, kBlockSize);
  config.max_num_batched_tokens = 16;
  Server server(config);
  std::vector<TokenRequest> requests;
  for (std::uint64_t i = 0; i < 8; ++i) {
    requests.push_back(streaming_request(20 + i, 2 + 9 * i, 60));
    requests.push_back(make_request(random_prompt(40 + i, 5 + i), 40));
  }
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (const TokenRequest& request : requests) streams.push_back(server.submit(request));
  server.engine->start();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto want = requests[i].eviction.evicts()
                          ? expected_tokens(requests[i])
                          : expected_output(requests[i], config.max_model_len).tokens;
    EXPECT_EQ(read_one(*streams[i]).tokens, want) << i;
  }
  EXPECT_GT(server.engine->stats().num_preemptions, 0u);
  EXPECT_EQ(server.engine->stats().num_free_blocks, 20);
}

TEST(KvEviction, WhatCannotRunIsRefused) {
  const auto message = [](std::int64_t sinks, std::int64_t window) {
    const Status status = check_eviction({KvEvictionPolicy::kStreaming, sinks, window}, /*num_blocks=*/10,
                                         /*block_size=*/16, 160);
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(message(4, 128), "");
  EXPECT_EQ(message(0, 16), "");
  EXPECT_THAT(message(-1, 32), HasSubstr("kv_sinks must lie in [0, 512]"));
  EXPECT_THAT(message(513, 32), HasSubstr("kv_sinks must lie in [0, 512]"));
  EXPECT_THAT(message(4, 15), HasSubstr("at least one block of 16"));
  EXPECT_THAT(message(4, 157), HasSubstr("the context of 160 tokens"));
  EXPECT_THAT(message(4, 140), HasSubstr("need 11 KV blocks, but the cache has 10"));
}

}  // namespace
}  // namespace quire
