// Purpose: checkpoints of tiny random models for tests, in memory. In: the fields of a config.json. Out: a
// Checkpoint for load_model(). Thread: plain values. Out of scope: the cases that come from transformers
// (tools/make_decoder_cases.py makes the same weights).
#pragma once

#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "loader/checkpoint.h"

namespace quire {

class MemoryTensors final : public TensorSource {
 public:
  void add(const std::string& name, std::vector<std::int64_t> shape, std::vector<float> values) {
    storage_.push_back(std::move(values));
    TensorView view;
    view.name = name;
    view.shape = std::move(shape);
    view.data = std::as_bytes(std::span(storage_.back()));
    views_.push_back(std::move(view));
  }
  void remove(const std::string& name) {
    std::erase_if(views_, [&](const TensorView& view) { return view.name == name; });
  }
  const TensorView* find(std::string_view name) const override {
    for (const TensorView& view : views_) {
      if (view.name == name) return &view;
    }
    return nullptr;
  }
  const std::vector<TensorView>& tensors() const override { return views_; }

 private:
  std::list<std::vector<float>> storage_;
  std::vector<TensorView> views_;
};

// The weights of tools/make_decoder_cases.py: SplitMix64 from the FNV-1a hash of the name.
inline std::vector<float> made_values(const std::string& name, std::int64_t count) {
  std::uint64_t seed = 14695981039346656037ull;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    seed += 0x9E3779B97F4A7C15ull;
    std::uint64_t z = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    const double uniform = static_cast<double>(z >> 40) / 16777216.0 - 0.5;
    value = static_cast<float>(name.ends_with("norm.weight") ? uniform + 1.0 : uniform * 0.5);
  }
  return values;
}

struct TinyModel {
  Checkpoint checkpoint;
  MemoryTensors* tensors = nullptr;

  explicit TinyModel(const nlohmann::json& config) {
    checkpoint.name = "tiny";
    checkpoint.format = CheckpointFormat::kSafetensors;
    checkpoint.config_json = config.dump();
    auto owned = std::make_unique<MemoryTensors>();
    tensors = owned.get();
    checkpoint.tensors = std::move(owned);
    const std::int64_t hidden = config["hidden_size"];
    const std::int64_t wide = config["intermediate_size"];
    const std::int64_t heads = config["num_attention_heads"];
    const std::int64_t kv_heads = config["num_key_value_heads"];
    const std::int64_t head_dim = config.value("head_dim", hidden / heads);
    const std::int64_t vocab = config["vocab_size"];
    const std::string type = config["model_type"];
    auto matrix = [&](const std::string& name, std::int64_t n, std::int64_t k, bool bias) {
      tensors->add(name + ".weight", {n, k}, made_values(name + ".weight", n * k));
      if (bias) tensors->add(name + ".bias", {n}, made_values(name + ".bias", n));
    };
    auto norm = [&](const std::string& name, std::int64_t n) {
      tensors->add(name + ".weight", {n}, made_values(name + ".weight", n));
    };
    matrix("model.embed_tokens", vocab, hidden, false);
    for (int i = 0; i < config["num_hidden_layers"].get<int>(); ++i) {
      const std::string p = "model.layers." + std::to_string(i) + ".";
      const bool attention_bias = config.value("attention_bias", false);
      const bool qkv_bias = type == "qwen2" || attention_bias;
      norm(p + "input_layernorm", hidden);
      matrix(p + "self_attn.q_proj", heads * head_dim, hidden, qkv_bias);
      matrix(p + "self_attn.k_proj", kv_heads * head_dim, hidden, qkv_bias);
      matrix(p + "self_attn.v_proj", kv_heads * head_dim, hidden, qkv_bias);
      matrix(p + "self_attn.o_proj", hidden, heads * head_dim, attention_bias);
      if (type == "qwen3") {
        norm(p + "self_attn.q_norm", head_dim);
        norm(p + "self_attn.k_norm", head_dim);
      }
      norm(p + "post_attention_layernorm", hidden);
      const bool mlp_bias = config.value("mlp_bias", false);
      matrix(p + "mlp.gate_proj", wide, hidden, mlp_bias);
      matrix(p + "mlp.up_proj", wide, hidden, mlp_bias);
      matrix(p + "mlp.down_proj", hidden, wide, mlp_bias);
    }
    norm("model.norm", hidden);
    if (!config["tie_word_embeddings"].get<bool>()) matrix("lm_head", vocab, hidden, false);
  }
};

}  // namespace quire
