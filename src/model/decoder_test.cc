// Tiny random models against logits by Hugging Face transformers (tools/make_decoder_cases.py), and the
// decoder's own contracts: chunks, GGUF's row order, tied embeddings.
#include "model/decoder.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/tensor_names.h"
#include "model/testing/tiny_model.h"

namespace quire {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

std::unique_ptr<Backend> make_test_backend(const char* name) {
  BackendOptions options;
  options.num_threads = 2;
  auto backend = make_backend(name, options);
  EXPECT_TRUE(backend.ok());
  return *std::move(backend);
}

// Logits at every position, computed in chunks. [ids.size()][vocab]
std::vector<std::vector<float>> run(Model& model, const std::vector<std::int32_t>& ids, std::size_t chunk) {
  constexpr std::int64_t kBlockSize = 4;
  const auto num_blocks = static_cast<std::int64_t>(ids.size()) / kBlockSize + 1;
  EXPECT_TRUE(model.allocate_kv(num_blocks, kBlockSize, DType::kF32).ok());
  // Blocks in reverse, so that a slot is not a position.
  std::vector<std::int32_t> table(static_cast<std::size_t>(num_blocks));
  std::iota(table.rbegin(), table.rend(), 0);
  std::vector<std::vector<float>> rows;
  for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
    const std::size_t end = std::min(ids.size(), begin + chunk);
    Batch batch;
    for (std::size_t i = begin; i < end; ++i) {
      batch.token_ids.push_back(ids[i]);
      batch.positions.push_back(static_cast<std::int32_t>(i));
      batch.slots.push_back(table[i / kBlockSize] * static_cast<std::int32_t>(kBlockSize) +
                            static_cast<std::int32_t>(i % kBlockSize));
      batch.logit_rows.push_back(static_cast<std::int32_t>(i - begin));
    }
    batch.query_starts = {0, static_cast<std::int32_t>(end - begin)};
    batch.context_lens = {static_cast<std::int32_t>(end)};
    batch.block_tables = table;
    batch.block_table_stride = num_blocks;
    const Logits logits = model.forward(batch);
    for (std::int64_t i = 0; i < logits.num_rows; ++i) {
      rows.emplace_back(logits.row(i), logits.row(i) + logits.vocab_size);
    }
  }
  return rows;
}

std::vector<Json> read_cases() {
  std::vector<Json> cases;
  std::ifstream file(QUIRE_SOURCE_DIR "/tests/data/decoder_cases.jsonl");
  for (std::string line; std::getline(file, line);) cases.push_back(Json::parse(line));
  return cases;
}

TEST(Decoder, LogitsAreThoseOfTransformers) {
  const auto cases = read_cases();
  ASSERT_GE(cases.size(), 10u);
  for (const char* backend_name : {"ref", "cpu"}) {
    for (const Json& each : cases) {
      SCOPED_TRACE(std::string(backend_name) + ": " + each["case"].get<std::string>());
      const TinyModel tiny(each["config"]);
      const auto backend = make_test_backend(backend_name);
      const auto ids = each["ids"].get<std::vector<std::int32_t>>();
      LoadOptions options;
      options.max_model_len = static_cast<std::int64_t>(ids.size());
      auto model = load_model(tiny.checkpoint, *backend, options);
      ASSERT_TRUE(model.ok()) << model.error().message;
      const auto rows = run(**model, ids, ids.size());
      double largest = 0;
      for (std::size_t i = 0; i < each["positions"].size(); ++i) {
        const auto& expected = each["logits"][i];
        const auto& row = rows[each["positions"][i].get<std::size_t>()];
        for (std::size_t j = 0; j < row.size(); ++j) {
          largest = std::max(largest, std::abs(static_cast<double>(row[j]) - expected[j].get<double>()));
        }
      }
      EXPECT_LT(largest, 2e-4);
    }
  }
}

TEST(Decoder, ChunksChangeNothing) {
  for (const char* backend_name : {"ref", "cpu"}) {
    for (const Json& each : read_cases()) {
      SCOPED_TRACE(std::string(backend_name) + ": " + each["case"].get<std::string>());
      const TinyModel tiny(each["config"]);
      const auto backend = make_test_backend(backend_name);
      const auto ids = each["ids"].get<std::vector<std::int32_t>>();
      LoadOptions options;
      options.max_model_len = 96;
      auto model = load_model(tiny.checkpoint, *backend, options);
      ASSERT_TRUE(model.ok()) << model.error().message;
      const auto whole = run(**model, ids, ids.size());
      EXPECT_EQ(whole, run(**model, ids, 7));
      if (backend->name() == "cpu") {  // ref computes each row by itself anyway, and slowly
        EXPECT_EQ(whole, run(**model, ids, 1));
      }
    }
  }
}

Json case_named(const std::string& name) {
  for (Json& each : read_cases()) {
    if (each["case"] == name) return each;
  }
  ADD_FAILURE() << name;
  return {};
}

// GGUF stores Llama's q and k rows for neighbouring pairs; the same model in that order gives the same
// logits.
TEST(Decoder, GgufLlamaRowsAreReordered) {
  const Json each = case_named("llama");
  const Json& config = each["config"];
  TinyModel tiny(config);
  const auto backend = make_test_backend("ref");
  auto model = load_model(tiny.checkpoint, *backend, {});
  ASSERT_TRUE(model.ok());
  const auto ids = each["ids"].get<std::vector<std::int32_t>>();
  const auto expected = run(**model, ids, ids.size());

  Checkpoint gguf;
  gguf.name = "tiny-gguf";
  gguf.format = CheckpointFormat::kGguf;
  auto tensors = std::make_unique<MemoryTensors>();
  for (const TensorView& view : tiny.tensors->tensors()) {
    const auto dot = view.name.find_last_of('.');
    const std::string layer = view.name.substr(0, dot);
    std::vector<float> values(static_cast<std::size_t>(view.num_values()));
    std::memcpy(values.data(), view.data.data(), view.data.size());
    if (layer.ends_with("q_proj") || layer.ends_with("k_proj")) {
      const std::vector<float> original = values;
      const std::int64_t head_dim = 16;
      const std::int64_t k = view.shape[1];
      for (std::int64_t row = 0; row < view.shape[0]; ++row) {
        const std::int64_t i =
            row % head_dim;  // row 2j holds what was row j of the head, row 2j + 1 row j + 8
        const std::int64_t from = row - i + (i % 2 == 0 ? i / 2 : i / 2 + head_dim / 2);
        std::copy_n(original.begin() + from * k, k, values.begin() + row * k);
      }
    }
    tensors->add(gguf_layer_name(layer) + view.name.substr(dot), view.shape, std::move(values));
  }
  gguf.tensors = std::move(tensors);
  gguf.metadata.set("general.architecture", std::string("llama"));
  const std::pair<const char*, const char*> sizes[] = {{"embedding_length", "hidden_size"},
                                                       {"block_count", "num_hidden_layers"},
                                                       {"feed_forward_length", "intermediate_size"},
                                                       {"attention.head_count", "num_attention_heads"},
                                                       {"attention.head_count_kv", "num_key_value_heads"},
                                                       {"context_length", "max_position_embeddings"}};
  for (const auto& [key, field] : sizes) {
    gguf.metadata.set(std::string("llama.") + key, config[field].get<std::uint64_t>());
  }
  gguf.metadata.set("llama.attention.layer_norm_rms_epsilon", 1e-5);
  auto from_gguf = load_model(gguf, *backend, {});
  ASSERT_TRUE(from_gguf.ok()) << from_gguf.error().message;
  EXPECT_EQ(run(**from_gguf, ids, ids.size()), expected);
}

// QNT-10: tied embeddings and lm_head that disagree with the files.
TEST(Decoder, TiedEmbeddings) {
  const auto backend = make_test_backend("ref");
  Json each = case_named("qwen3");
  const auto ids = each["ids"].get<std::vector<std::int32_t>>();
  TinyModel tied(each["config"]);
  auto model = load_model(tied.checkpoint, *backend, {});
  ASSERT_TRUE(model.ok());
  const auto expected = run(**model, ids, ids.size());

  // tie true and an lm_head in the file: the embedding is used, with a note.
  tied.tensors->add("lm_head.weight", {96, 64}, made_values("lm_head.weight", 96 * 64));
  auto with_head = load_model(tied.checkpoint, *backend, {});
  ASSERT_TRUE(with_head.ok());
  EXPECT_EQ(run(**with_head, ids, ids.size()), expected);
  EXPECT_THAT((*with_head)->report(), ::testing::Contains(HasSubstr("lm_head.weight is not used")));

  // tie false and no lm_head: refused; the message names the key.
  tied.tensors->remove("lm_head.weight");
  Json untied = each["config"];
  for (const bool missing : {false, true}) {
    untied["tie_word_embeddings"] = false;
    if (missing) untied.erase("tie_word_embeddings");  // the default of these architectures is false
    tied.checkpoint.config_json = untied.dump();
    const auto refused = load_model(tied.checkpoint, *backend, {});
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("tie_word_embeddings"));
  }
}

TEST(Decoder, ErrorsNameTheTensor) {
  const auto backend = make_test_backend("ref");
  const Json each = case_named("qwen2");
  TinyModel tiny(each["config"]);
  tiny.tensors->remove("model.layers.1.mlp.up_proj.weight");
  auto missing = load_model(tiny.checkpoint, *backend, {});
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("model.layers.1.mlp.up_proj.weight"));
  tiny.tensors->add("model.layers.1.mlp.up_proj.weight", {96, 32}, std::vector<float>(96 * 32));
  auto shape = load_model(tiny.checkpoint, *backend, {});
  ASSERT_FALSE(shape.ok());
  EXPECT_THAT(shape.error().message, HasSubstr("[96, 32]"));
  TinyModel no_bias(each["config"]);
  no_bias.tensors->remove("model.layers.2.self_attn.k_proj.bias");
  auto bias = load_model(no_bias.checkpoint, *backend, {});
  ASSERT_FALSE(bias.ok());
  EXPECT_THAT(bias.error().message, HasSubstr("layer 2"));
}

}  // namespace
}  // namespace quire
