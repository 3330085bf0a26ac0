#include "api/api_server.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/chat_messages.h"
#include "api/field_reader.h"
#include "api/logprob_json.h"
#include "api/test_support.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kTemplate = "{% for m in messages %}{{ m['content'] }}{% endfor %}";

class ApiServerTest : public ::testing::Test {
 protected:
  explicit ApiServerTest(ApiOptions options = {}) : api_(std::move(options)) {
    api_.serve_model(backend_.served());
  }
  void call(RecordingWriter& writer, const std::string& method, const std::string& path,
            const std::string& body, const HttpHeaders& headers = {}) {
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.body = body;
    request.headers = headers;
    api_.handle(request, writer);
  }
  RecordingWriter post(const std::string& path, const std::string& body) {
    RecordingWriter writer;
    call(writer, "POST", path, body);
    return writer;
  }
  Json json_of(const RecordingWriter& writer) { return Json::parse(writer.answer.body); }

  TestBackend backend_{kTemplate};
  ApiServer api_;
};

class ApiServerWithKeysTest : public ApiServerTest {
 protected:
  static ApiOptions options() {
    ApiOptions out;
    out.api_keys = {"alpha", "beta"};
    return out;
  }
  ApiServerWithKeysTest() : ApiServerTest(options()) {}
};

class ApiServerStallTest : public ApiServerTest {
 protected:
  static ApiOptions options() {
    ApiOptions out;
    out.engine_stall_seconds = 0.2;
    return out;
  }
  ApiServerStallTest() : ApiServerTest(options()) {}
  int health() {
    RecordingWriter writer;
    call(writer, "GET", "/health", "");
    return writer.answer.status;
  }
};

TEST_F(ApiServerStallTest, HealthFailsAndRequestsEndWhenTheEngineIsStuck) {
  EXPECT_EQ(health(), 200);
  backend_.model.blocked = true;
  const auto writer = post("/v1/completions", R"({"prompt": "A", "max_tokens": 5})");
  EXPECT_EQ(writer.answer.status, 500);
  EXPECT_EQ(health(), 503);
  backend_.model.blocked = false;
  for (int i = 0; i < 200 && health() != 200; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(health(), 200);
}

TEST_F(ApiServerTest, AFailingStepIsTheFailureOfItsRequests) {
  backend_.model.throws = true;
  for (const char* stream : {"false", "true"}) {
    const auto writer =
        post("/v1/completions", std::string(R"({"prompt": "A", "max_tokens": 5, "stream": )") + stream + "}");
    EXPECT_EQ(writer.answer.status, 500) << stream;
    EXPECT_EQ(json_of(writer)["error"]["type"], "server_error");
  }
  backend_.model.throws = false;
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "A", "max_tokens": 5})").answer.status, 200);
}

TEST_F(ApiServerTest, CompletesToTheEnd) {
  const Json answer = json_of(post("/v1/completions", R"({"prompt": "WX", "temperature": 0})"));
  EXPECT_EQ(answer["choices"][0]["text"], "YZé");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 5);
  EXPECT_EQ(answer["model"], "tiny");
}

TEST_F(ApiServerTest, StreamsTheRoleWithTheFirstToken) {
  const auto writer =
      post("/v1/chat/completions",
           R"({"messages": [{"role": "user", "content": "X"}], "temperature": 0, "stream": true})");
  ASSERT_TRUE(writer.streamed && writer.ended && !writer.closed);
  ASSERT_FALSE(writer.writes.empty());
  EXPECT_THAT(writer.writes[0], HasSubstr(R"("delta":{"role":"assistant","content":""})"));
  EXPECT_THAT(writer.writes[0], HasSubstr(R"("delta":{"content":"Y"})"));
  EXPECT_THAT(writer.answer.body, HasSubstr(R"("delta":{},"logprobs":null,"finish_reason":"stop")"));
  EXPECT_TRUE(writer.answer.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(ApiServerTest, EvictionLiftsTheBoundOfTheContext) {
  // 256 is the context; without <eos> (257) no answer ends by itself.
  const std::string longer =
      R"({"prompt": "A", "temperature": 0, "max_tokens": 400, "logit_bias": {"257": -100})";
  EXPECT_EQ(json_of(post("/v1/completions", longer + "}"))["usage"]["completion_tokens"], 255);
  const std::string evicting = longer + R"(, "kv_eviction": "streaming", "kv_window": 32)";
  EXPECT_EQ(json_of(post("/v1/completions", evicting + "}"))["usage"]["completion_tokens"], 400);
  const std::string long_prompt =
      std::string(R"({"prompt": ")") + std::string(300, 'A') + R"(", "max_tokens": 2)";
  EXPECT_EQ(post("/v1/completions", long_prompt + "}").answer.status, 400);
  EXPECT_EQ(post("/v1/completions", long_prompt + R"(, "kv_eviction": "streaming", "kv_window": 32})")
                .answer.status,
            200);
}

TEST_F(ApiServerTest, EvictionIsCheckedFieldByField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("kv_eviction": "oldest")", "kv_eviction"},
      {R"("kv_eviction": 1)", "kv_eviction"},
      {R"("kv_eviction": "h2o")", "kv_eviction"},
      {R"("kv_heavy_hitters": 8)", "kv_heavy_hitters"},
      {R"("kv_window": 32)", "kv_window"},  // of no policy
      {R"("kv_eviction": "none", "kv_sinks": 4)", "kv_sinks"},
      {R"("kv_eviction": "streaming", "kv_sinks": -1)", "kv_sinks"},
      {R"("kv_eviction": "streaming", "kv_window": 64, "kv_sinks": 513)", "kv_sinks"},
      {R"("kv_eviction": "streaming", "kv_window": 15)", "kv_window"},   // less than a block
      {R"("kv_eviction": "streaming", "kv_window": 253)", "kv_window"},  // with the sinks over the context
      {R"("kv_eviction": "streaming", "kv_window": 1.5)", "kv_window"},
  };
  for (const auto& [fields, param] : cases) {
    const auto writer = post("/v1/completions", std::string(R"({"prompt": "A", )") + fields + "}");
    EXPECT_EQ(writer.answer.status, 400) << fields;
    EXPECT_EQ(json_of(writer)["error"]["param"], param) << fields;
    EXPECT_THAT(writer.answer.body, HasSubstr(param));
  }
}

TEST_F(ApiServerTest, StopStringsEndAChoiceAndFreeItsSequence) {
  const Json answer = json_of(
      post("/v1/completions", R"({"prompt": "A", "temperature": 0, "stop": ["EF"], "max_tokens": 200})"));
  EXPECT_EQ(answer["choices"][0]["text"], "BCD");
  EXPECT_EQ(answer["choices"][0]["stop_reason"], "EF");
  for (int i = 0; i < 200 && backend_.engine->stats().num_running > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(backend_.engine->stats().num_running, 0);
}

TEST_F(ApiServerTest, AClientThatLeavesFreesItsBlocks) {
  RecordingWriter writer;
  writer.gone_after = 2;
  call(writer, "POST", "/v1/completions",
       R"({"prompt": "A", "temperature": 0, "ignore_eos": true, "max_tokens": 250, "stream": true})");
  EXPECT_FALSE(writer.ended);
  for (int i = 0; i < 200 && backend_.engine->stats().num_running > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const EngineStats stats = backend_.engine->stats();
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
}

TEST_F(ApiServerTest, WrongFieldsAreNamed) {
  for (const auto& [body, param] : std::vector<std::pair<std::string, std::string>>{
           {R"({"prompt": "A", "temperature": "hot"})", "temperature"},
           {R"({"prompt": "A", "n": 0})", "n"},
           {R"({"prompt": "A", "stop": [""]})", "stop"},
           {R"({"prompt": [999999]})", "prompt"},
           {R"({"prompt": "A", "stream_options": {}})", "stream_options"},
           {R"({"prompt": "A", "stream": true, "stream_options": {"include_usage": 1}})",
            "stream_options.include_usage"},
           {R"({"prompt": "A", "response_format": {"type": "json_object"}})", "response_format"},
           {R"({"prompt": "A", "min_tokens": 9, "max_tokens": 5})", "min_tokens"}}) {
    const auto writer = post("/v1/completions", body);
    EXPECT_EQ(writer.answer.status, 400) << body;
    EXPECT_EQ(json_of(writer)["error"]["param"], param) << body;
  }
}

TEST_F(ApiServerTest, LongPromptsAreRefusedBeforeAnyByteOfAStream) {
  const auto writer =
      post("/v1/completions", R"({"stream": true, "prompt": ")" + std::string(300, 'A') + R"("})");
  EXPECT_FALSE(writer.streamed);
  EXPECT_EQ(writer.answer.status, 400);
  EXPECT_EQ(json_of(writer)["error"]["code"], "context_length_exceeded");
}

TEST_F(ApiServerTest, FieldsNobodyKnowsAreTold) {
  const auto writer =
      post("/v1/completions", R"({"prompt": "A", "max_tokens": 1, "temprature": 0, "a b": 1})");
  EXPECT_EQ(writer.answer.status, 200);
  EXPECT_THAT(writer.answer.headers, ElementsAre(::testing::Pair("X-Quire-Ignored-Fields", "temprature")));
}

TEST_F(ApiServerTest, UnknownModelsAndPaths) {
  const auto writer = post("/v1/completions", R"({"prompt": "A", "model": "nobody"})");
  EXPECT_EQ(writer.answer.status, 404);
  EXPECT_EQ(json_of(writer)["error"]["code"], "model_not_found");
  EXPECT_EQ(
      post("/v1/completions", R"({"prompt": "A", "model": "other-name", "max_tokens": 1})").answer.status,
      200);
  EXPECT_EQ(post("/nowhere", "{}").answer.status, 404);
  RecordingWriter get;
  call(get, "GET", "/v1/completions", "");
  EXPECT_EQ(get.answer.status, 405);
}

TEST_F(ApiServerTest, ControlTokensInMessagesAreText) {
  const auto count = [&](const char* body) {
    return json_of(post("/v1/chat/completions", body))["usage"]["prompt_tokens"].get<int>();
  };
  EXPECT_EQ(count(R"({"messages": [{"role": "user", "content": "<eos>"}], "max_tokens": 1})"), 5);
  EXPECT_EQ(
      json_of(post("/v1/completions", R"({"prompt": "<eos>", "max_tokens": 1})"))["usage"]["prompt_tokens"],
      1);
}

TEST_F(ApiServerTest, AnswersOfOneRequestAreCountedOnce) {
  post("/v1/completions", R"({"prompt": "A", "n": 2, "max_tokens": 3, "temperature": 0})");
  const EngineStats stats = backend_.engine->stats();
  const std::string page = api_.metrics().text(&stats);
  EXPECT_THAT(page, HasSubstr("vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name="
                              "\"tiny\"} 2"));
  EXPECT_THAT(page, HasSubstr("vllm:generation_tokens_total{engine=\"0\",model_name=\"tiny\"} 6"));
}

TEST_F(ApiServerWithKeysTest, OnlyAWholeKeyOpens) {
  const auto status = [&](const std::string& header) {
    RecordingWriter writer;
    call(writer, "GET", "/v1/models", "", {{"authorization", header}});
    return writer.answer.status;
  };
  EXPECT_EQ(status("Bearer alpha"), 200);
  EXPECT_EQ(status("bEARER  beta "), 200);
  for (const char* bad : {"", "Bearer", "Bearer ", "Bearer alph", "Bearer alphaalpha", "Bearer Alpha",
                          "Basic alpha", "alpha", "Bearer alpha beta", "Bearer a"}) {
    EXPECT_EQ(status(bad), 401) << bad;
  }
  RecordingWriter health;
  call(health, "GET", "/health", "");
  EXPECT_EQ(health.answer.status, 200);
}

TEST(ApiServerLoading, AnswersBeforeTheModelIsThere) {
  ApiServer api({});
  for (const auto& [path, status] : std::vector<std::pair<std::string, int>>{
           {"/health", 503}, {"/v1/models", 503}, {"/nowhere", 503}, {"/metrics", 200}, {"/version", 200}}) {
    RecordingWriter writer;
    HttpRequest request;
    request.method = "GET";
    request.path = path;
    api.handle(request, writer);
    EXPECT_EQ(writer.answer.status, status) << path;
  }
}

TEST(ToolArguments, AreTextOnlyForTemplatesThatJoinThem) {
  EXPECT_TRUE(template_wants_argument_text("{{ '```json\\n' + tool['function']['arguments'] + '\\n```' }}"));
  EXPECT_TRUE(template_wants_argument_text("{{ 'a' + tool_call.function.arguments }}"));
  EXPECT_FALSE(template_wants_argument_text("{{ '{' + tool_call.arguments | tojson + '}' }}"));
  EXPECT_FALSE(template_wants_argument_text("{{ tool_call.arguments }}"));
  EXPECT_FALSE(template_wants_argument_text("no arguments here"));
}

TEST(IgnoredFields, ShowOnlyHarmlessNames) {
  EXPECT_EQ(show_field_names({"a", "b\r\nSet-Cookie: x", "", "c.d-e_f"}), "a, c.d-e_f");
}

TEST(CompletionLogprobsTest, OffsetsCountCharacters) {
  const ByteTokenizer tokenizer;
  CompletionLogprobs logprobs(tokenizer, false);
  for (const std::int32_t id : {65, 0xc3, 0xa9, 66}) logprobs.add(id, std::nullopt);
  const Json block = logprobs.take();
  EXPECT_THAT(block["text_offset"].get<std::vector<int>>(), ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(block["tokens"].get<std::vector<std::string>>(),
              ElementsAre("A", "bytes:\\xc3", "bytes:\\xa9", "B"));
  logprobs.add(67, PositionLogprobs{{67, -0.5f, 1}, {{67, -0.5f, 1}, {68, -INFINITY, 2}}});
  const Json next = logprobs.take();
  EXPECT_EQ(next["text_offset"][0], 3);
  EXPECT_EQ(next["top_logprobs"][0].dump(), R"({"C":-0.5,"D":-9999.0})");
}

}  // namespace
}  // namespace quire
