#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace quire {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json base() {
  return Json{{"model_type", "llama"},      {"vocab_size", 100},      {"hidden_size", 64},
              {"intermediate_size", 128},   {"num_hidden_layers", 2}, {"num_attention_heads", 4},
              {"num_key_value_heads", 2},   {"rms_norm_eps", 1e-5},   {"max_position_embeddings", 512},
              {"tie_word_embeddings", true}};
}

Result<ModelConfig> read(const Json& config, const std::string& generation = "") {
  Checkpoint checkpoint;
  checkpoint.name = "m";
  checkpoint.format = CheckpointFormat::kSafetensors;
  checkpoint.config_json = config.dump();
  checkpoint.generation_config_json = generation;
  return read_model_config(checkpoint);
}

TEST(ModelConfig, ReadsSizesAndDefaults) {
  const auto config = read(base());
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->rope_dim, 16);
  EXPECT_EQ(config->rope_theta, 10000.0);
  EXPECT_EQ(config->sliding_window, 0);
  EXPECT_TRUE(config->eos_ids.empty());
  EXPECT_EQ(config->default_temperature, -1);
}

// LDR-16: several eos ids, from either file; those outside the vocabulary are dropped.
TEST(ModelConfig, CollectsEosIds) {
  Json config = base();
  config["eos_token_id"] = 7;
  const auto both =
      read(config, R"({"eos_token_id": [9, 7, 5000], "temperature": 0.7, "top_k": 20, "top_p": 0.8})");
  ASSERT_TRUE(both.ok());
  EXPECT_THAT(both->eos_ids, ElementsAre(7, 9));
  EXPECT_EQ(both->default_temperature, 0.7);
  EXPECT_EQ(both->default_top_k, 20);
  const auto greedy = read(base(), R"({"do_sample": false, "temperature": 0.7})");
  EXPECT_EQ(greedy->default_temperature, 0.0);
}

TEST(ModelConfig, ReadsBothSpellingsOfRopeScaling) {
  for (const char* text :
       {R"({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}})",
        R"({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 5e5,
                               "original_max_position_embeddings": 128}})"}) {
    Json config = base();
    config.update(Json::parse(text));
    const auto read_back = read(config);
    ASSERT_TRUE(read_back.ok()) << read_back.error().message;
    EXPECT_EQ(read_back->rope_scaling.type, RopeScalingType::kYarn);
    EXPECT_EQ(read_back->rope_scaling.original_context, 128);
  }
  Json config = base();
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(read(config)->context_length, 2048);  // 4 x 512
  config["rope_scaling"] = {{"type", "longrope"}, {"factor", 4.0}};
  EXPECT_THAT(read(config).error().message, HasSubstr("longrope"));
  config["rope_scaling"] = nullptr;
  EXPECT_TRUE(read(config).ok());
}

TEST(ModelConfig, RefusesNonsense) {
  const struct {
    const char* change;
    const char* says;
  } cases[] = {
      {R"({"hidden_size": "64"})", "hidden_size"},
      {R"({"hidden_size": -64})", "hidden size"},
      {R"({"hidden_size": 18446744073709551615})", "hidden_size"},
      {R"({"num_attention_heads": 0})", "attention heads"},
      {R"({"num_key_value_heads": 3})", "3 key-value heads"},
      {R"({"head_dim": 15})", "15"},
      {R"({"hidden_act": "gelu"})", "gelu"},
      {R"({"eos_token_id": "x"})", "eos_token_id"},
      {R"({"rope_scaling": {"type": "linear", "factor": 0.5}})", "0.5"},
      {R"({"rope_scaling": 5})", "rope_scaling"},
      {R"({"partial_rotary_factor": 0})", "partial_rotary_factor"},
      {R"({"rms_norm_eps": "small"})", "rms_norm_eps"},
      {R"({"tie_word_embeddings": 1})", "tie_word_embeddings"},
  };
  for (const auto& each : cases) {
    Json config = base();
    config.update(Json::parse(each.change));
    const auto refused = read(config);
    ASSERT_FALSE(refused.ok()) << each.change;
    EXPECT_THAT(refused.error().message, HasSubstr(each.says)) << each.change;
  }
  Json missing = base();
  missing.erase("num_hidden_layers");
  EXPECT_THAT(read(missing).error().message, HasSubstr("num_hidden_layers"));
  Checkpoint broken;
  broken.format = CheckpointFormat::kSafetensors;
  broken.config_json = "{";
  EXPECT_FALSE(read_model_config(broken).ok());
  broken.config_json = "";
  EXPECT_THAT(read_model_config(broken).error().message, HasSubstr("config.json"));
}

}  // namespace
}  // namespace quire
