#include "loader/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loader/test_files.h"

namespace quire {
namespace {

using ::testing::AllOf;
using testing::ByteWriter;
using testing::GgufMaker;
using ::testing::HasSubstr;
using testing::make_safetensors;
using testing::TempFolder;

TEST(SummaryTest, Gguf) {
  GgufMaker maker;
  maker.pair_text("general.architecture", "qwen2")
      .pair_text("general.name", "Tiny")
      .pair_u32("qwen2.context_length", 77);
  maker.pair_text("tokenizer.ggml.model", "gpt2").pair_text("tokenizer.ggml.pre", "qwen2");
  maker.pair_text("tokenizer.chat_template", "{{ x }}");
  maker.raw_pair("tokenizer.ggml.tokens", 9,
                 ByteWriter().put(8u).put(std::uint64_t{2}).text("a").text("b").bytes());
  maker.tensor("a", {8}, 0, 32).tensor("b", {64, 2}, 2, 72).tensor("c", {64}, 2, 36);
  const TempFolder folder;
  const auto checkpoint = open_checkpoint(folder.write("m.gguf", maker.file()));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto summary = summarize(**checkpoint);
  ASSERT_TRUE(summary.ok()) << summary.error().message;
  EXPECT_EQ(summary->architecture, "qwen2");
  EXPECT_EQ(summary->title, "Tiny");
  EXPECT_EQ(summary->context_length, 77);
  EXPECT_EQ(summary->tokenizer, "gpt2 (qwen2)");
  EXPECT_EQ(summary->vocabulary_size, 2);
  EXPECT_EQ(summary->chat_template_bytes, 7);
  EXPECT_EQ(summary->num_parameters, 8 + 128 + 64);
  ASSERT_EQ(summary->types.size(), 2u);
  EXPECT_EQ(summary->types[0].type, "Q4_0");
  EXPECT_EQ(summary->types[0].num_tensors, 2);
  EXPECT_EQ(summary->types[0].bytes, 108u);
}

class FolderSummaryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write("model.safetensors",
                  make_safetensors(R"({"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}})", 12));
  }
  Result<CheckpointSummary> summary() {
    QUIRE_TRY(const auto checkpoint, open_checkpoint(folder_.path()));
    return summarize(*checkpoint);
  }
  TempFolder folder_;
};

TEST_F(FolderSummaryTest, SideFiles) {
  folder_.write("config.json", R"({"model_type":"llama","max_position_embeddings":512})");
  folder_.write("tokenizer.json", R"({"model":{"type":"BPE","vocab":{"a":0,"b":1}},)"
                                  R"("added_tokens":[{"id":1,"content":"b"},{"id":2,"content":"<s>"}]})");
  folder_.write("tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"xx"},)"
                                         R"({"name":"default","template":"xyz"}]})");
  auto found = summary();
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->architecture, "llama");
  EXPECT_EQ(found->context_length, 512);
  EXPECT_EQ(found->tokenizer, "BPE");
  EXPECT_EQ(found->vocabulary_size, 3);
  EXPECT_EQ(found->chat_template_bytes, 3);
  EXPECT_EQ(found->num_parameters, 6);
  folder_.write("tokenizer.json", R"({"model":{"type":"Unigram","vocab":[["a",0.0],["b",-1.0]]},)"
                                  R"("added_tokens":[{"id":0,"content":"a"},{"id":5,"content":"z"}]})");
  folder_.write("config.json", R"({"architectures":["Qwen3ForCausalLM"]})");
  found = summary();
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(found->vocabulary_size, 3);
  EXPECT_EQ(found->context_length, std::nullopt);
}

TEST_F(FolderSummaryTest, BareAndBrokenFolders) {
  auto found = summary();
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->architecture, "");
  EXPECT_EQ(found->chat_template_bytes, std::nullopt);
  folder_.write("config.json", "{");
  found = summary();
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().message, AllOf(HasSubstr("config.json"), HasSubstr(folder_.path())));
  folder_.write("config.json", R"({"a":)" + std::string(100000, '[') + std::string(100000, ']') + "}");
  EXPECT_FALSE(summary().ok());
}

}  // namespace
}  // namespace quire
