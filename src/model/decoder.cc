#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/buffer.h"
#include "base/check.h"
#include "model/rope.h"
#include "model/weight_reader.h"

namespace quire {
namespace {

struct Linear {
  std::unique_ptr<PackedWeight> weight;
  std::vector<float> bias;  // empty = none
  LinearTarget to(float* out) const {
    LinearTarget target;
    target.weight = weight.get();
    target.bias = bias.empty() ? nullptr : bias.data();
    target.out = out;
    return target;
  }
};

struct Layer {
  std::vector<float> attention_norm;
  Linear q, k, v, o;
  std::vector<float> q_norm, k_norm;  // empty = none
  std::vector<float> mlp_norm;
  Linear gate, up, down;
  std::int64_t window = 0;
};

// Row j of a head in the order for pairs (i, i + half) from rows stored for pairs (2i, 2i + 1).
std::vector<std::int32_t> unpair_rows(std::int64_t num_heads, std::int64_t head_dim, std::int64_t rope_dim) {
  std::vector<std::int32_t> permutation(static_cast<std::size_t>(num_heads * head_dim));
  std::iota(permutation.begin(), permutation.end(), 0);
  for (std::int64_t head = 0; head < num_heads; ++head) {
    for (std::int64_t i = 0; i < rope_dim; ++i) {
      const std::int64_t stored = i < rope_dim / 2 ? 2 * i : 2 * (i - rope_dim / 2) + 1;
      permutation[static_cast<std::size_t>(head * head_dim + i)] =
          static_cast<std::int32_t>(head * head_dim + stored);
    }
  }
  return permutation;
}

// Rows of float activations that grow with the largest batch seen.
class Activations {
 public:
  float* rows(std::int64_t num_rows, std::int64_t width) {
    const auto needed = static_cast<std::size_t>(num_rows * width) * sizeof(float);
    if (buffer_.size() < needed) buffer_ = Buffer(needed);
    return buffer_.as<float>();
  }

 private:
  Buffer buffer_;
};

class Decoder final : public Model {
 public:
  Decoder(ModelConfig config, Backend& backend) : config_(std::move(config)), backend_(backend) {}

  Status load(const DecoderTraits& traits, const Checkpoint& checkpoint, const LoadOptions& options);

  const ModelConfig& config() const override { return config_; }
  Status allocate_kv(std::int64_t num_blocks, std::int64_t block_size, DType dtype) override {
    QUIRE_TRY(kv_, backend_.make_kv_cache(kv_spec(num_blocks, block_size, dtype)));
    return {};
  }
  std::size_t kv_block_bytes(std::int64_t block_size, DType dtype) const override {
    return backend_.kv_block_bytes(kv_spec(1, block_size, dtype));
  }
  Logits forward(const Batch& batch) override;
  void copy_block(std::int32_t from, std::int32_t to) override { backend_.copy_block(*kv_, from, to); }
  std::size_t weight_bytes() const override { return weight_bytes_; }
  std::vector<std::string> report() const override { return report_; }

 private:
  KvSpec kv_spec(std::int64_t num_blocks, std::int64_t block_size, DType dtype) const {
    return {config_.num_layers, config_.num_kv_heads, config_.head_dim, block_size, num_blocks, dtype};
  }
  Status load_layer_weights(const DecoderTraits& traits, WeightReader* reader, std::int64_t index,
                            std::span<const std::int32_t> q_rows, std::span<const std::int32_t> k_rows);
  Status load_head(WeightReader* reader);
  void attention_block(const Layer& layer, std::int64_t index, const Batch& batch, float* x);
  void mlp_block(const Layer& layer, std::int64_t num_tokens, float* x);

  ModelConfig config_;
  Backend& backend_;
  std::unique_ptr<PackedWeight> embedding_;
  std::unique_ptr<PackedWeight> head_;  // null = tied to embedding_
  std::vector<Layer> layers_;
  std::vector<float> final_norm_;
  RopeTable rope_;
  std::unique_ptr<KvCache> kv_;
  std::size_t weight_bytes_ = 0;
  std::vector<std::string> report_;

  // Of the present batch: the table's rows, or own ones where a position lies beyond the table.
  struct RopeRows {
    const float* cos = nullptr;
    const float* sin = nullptr;
    const std::int32_t* positions = nullptr;
  };
  void find_rope_rows(const Batch& batch);
  void rope(float* x, std::int64_t num_tokens, std::int64_t num_heads, const RopeRows& rows);
  RopeRows rope_rows_;
  std::vector<std::int32_t> far_rows_;

  Activations far_cos_, far_sin_, sink_q_;
  Activations x_, q_, k_, v_, attended_, activated_, picked_, logits_;
};

Status Decoder::load(const DecoderTraits& traits, const Checkpoint& checkpoint, const LoadOptions& options) {
  WeightReader reader(checkpoint, backend_, options);
  if (checkpoint.format == CheckpointFormat::kGguf && reader.has("rope_freqs.weight")) {
    QUIRE_TRY(config_.rope_freq_factors, reader.vector("rope_freqs.weight", config_.rope_dim / 2));
    for (float factor : config_.rope_freq_factors) {
      if (!(factor > 0)) return invalid("tensor rope_freqs.weight holds a factor that is not positive");
    }
  }
  const std::int64_t positions = options.max_model_len > 0 ? options.max_model_len : config_.context_length;
  rope_ = make_rope_table(config_, positions, &backend_.pool());

  QUIRE_TRY(embedding_, reader.linear("model.embed_tokens", config_.vocab_size, config_.hidden_size));
  std::vector<std::int32_t> q_rows;
  std::vector<std::int32_t> k_rows;
  if (checkpoint.format == CheckpointFormat::kGguf && traits.gguf_rotates_neighbours) {
    q_rows = unpair_rows(config_.num_heads, config_.head_dim, config_.rope_dim);
    k_rows = unpair_rows(config_.num_kv_heads, config_.head_dim, config_.rope_dim);
  }
  layers_.resize(static_cast<std::size_t>(config_.num_layers));
  for (std::int64_t i = 0; i < config_.num_layers; ++i) {
    QUIRE_RETURN_IF_ERROR(load_layer_weights(traits, &reader, i, q_rows, k_rows));
  }
  QUIRE_TRY(final_norm_, reader.vector("model.norm.weight", config_.hidden_size));
  QUIRE_RETURN_IF_ERROR(load_head(&reader));

  weight_bytes_ = reader.packed_bytes();
  for (std::string& line : reader.layout_report()) report_.push_back("weights " + line);
  // Old Llama checkpoints carry the rotation frequencies, which follow from the configuration.
  std::vector<std::string> unread = reader.unread();
  std::erase_if(unread, [](const std::string& name) { return name.ends_with("rotary_emb.inv_freq"); });
  if (!unread.empty()) {
    const std::size_t shown = std::min<std::size_t>(unread.size(), 5);
    report_.push_back(
        fmt::format("{} tensors of the file are not used: {}{}", unread.size(),
                    fmt::join(unread.begin(), unread.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                    shown < unread.size() ? ", ..." : ""));
  }
  return {};
}

Status Decoder::load_layer_weights(const DecoderTraits& traits, WeightReader* reader, std::int64_t index,
                                   std::span<const std::int32_t> q_rows,
                                   std::span<const std::int32_t> k_rows) {
  Layer& layer = layers_[static_cast<std::size_t>(index)];
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t q_dim = config_.num_heads * config_.head_dim;
  const std::int64_t kv_dim = config_.num_kv_heads * config_.head_dim;
  auto load_linear = [&](Linear* linear, const std::string& name, std::int64_t n, std::int64_t k,
                         std::span<const std::int32_t> rows = {}) -> Status {
    QUIRE_TRY(linear->weight, reader->linear(prefix + name, n, k, rows));
    QUIRE_TRY(linear->bias, reader->optional_bias(prefix + name, n, rows));
    return {};
  };
  QUIRE_TRY(layer.attention_norm, reader->vector(prefix + "input_layernorm.weight", hidden));
  QUIRE_RETURN_IF_ERROR(load_linear(&layer.q, "self_attn.q_proj", q_dim, hidden, q_rows));
  QUIRE_RETURN_IF_ERROR(load_linear(&layer.k, "self_attn.k_proj", kv_dim, hidden, k_rows));
  QUIRE_RETURN_IF_ERROR(load_linear(&layer.v, "self_attn.v_proj", kv_dim, hidden));
  if (traits.qkv_bias_required && (layer.q.bias.empty() || layer.k.bias.empty() || layer.v.bias.empty())) {
    return invalid(fmt::format("layer {} has no biases for q, k and v, which a {} model needs", index,
                               config_.architecture));
  }
  QUIRE_RETURN_IF_ERROR(load_linear(&layer.o, "self_attn.o_proj", hidden, q_dim));
  if (traits.qk_norm) {
    QUIRE_TRY(layer.q_norm, reader->vector(prefix + "self_attn.q_norm.weight", config_.head_dim));
    QUIRE_TRY(layer.k_norm, reader->vector(prefix + "self_attn.k_norm.weight", config_.head_dim));
  }
  QUIRE_TRY(layer.mlp_norm, reader->vector(prefix + "post_attention_layernorm.weight", hidden));
  QUIRE_RETURN_IF_ERROR(load_linear(&layer.gate, "mlp.gate_proj", config_.intermediate_size, hidden));
  QUIRE_RETURN_IF_ERROR(load_linear(&layer.up, "mlp.up_proj", config_.intermediate_size, hidden));
  QUIRE_RETURN_IF_ERROR(load_linear(&layer.down, "mlp.down_proj", hidden, config_.intermediate_size));
  if (index >= config_.full_attention_layers) layer.window = config_.sliding_window;
  return {};
}

Status Decoder::load_head(WeightReader* reader) {
  const bool has_head = reader->has("lm_head.weight");
  if (config_.tie_word_embeddings) {
    // The configuration decides: transformers ties them too, and then ignores an lm_head in the file.
    if (has_head) {
      reader->ignore("lm_head.weight");
      report_.push_back("tie_word_embeddings is set: the file's own lm_head.weight is not used");
    } else {
      report_.push_back("the output layer is tied to the embedding");
    }
    return {};
  }
  if (!has_head) {
    return invalid(
        "the checkpoint has no lm_head.weight and its config.json does not set tie_word_embeddings; "
        "if the model shares its embedding with the output layer, set \"tie_word_embeddings\": true");
  }
  QUIRE_TRY(head_, reader->linear("lm_head", config_.vocab_size, config_.hidden_size));
  return {};
}

void Decoder::attention_block(const Layer& layer, std::int64_t index, const Batch& batch, float* x) {
  const std::int64_t tokens = batch.num_tokens();
  const std::int64_t heads = config_.num_heads;
  const std::int64_t kv_heads = config_.num_kv_heads;
  const std::int64_t head_dim = config_.head_dim;
  const auto eps = static_cast<float>(config_.rms_norm_eps);
  float* q = q_.rows(tokens, heads * head_dim);
  float* k = k_.rows(tokens, kv_heads * head_dim);
  float* v = v_.rows(tokens, kv_heads * head_dim);
  const LinearTarget qkv[] = {layer.q.to(q), layer.k.to(k), layer.v.to(v)};
  backend_.linear({x, tokens, layer.attention_norm.data(), eps}, qkv);
  if (!layer.q_norm.empty()) {
    backend_.rms_norm(q, layer.q_norm.data(), eps, tokens * heads, head_dim, q);
    backend_.rms_norm(k, layer.k_norm.data(), eps, tokens * kv_heads, head_dim, k);
  }
  float* sink_q = nullptr;
  if (!batch.sink_positions.empty()) {
    sink_q = sink_q_.rows(tokens, heads * head_dim);
    std::copy_n(q, tokens * heads * head_dim, sink_q);
    rope(sink_q, tokens, heads, {rope_.cos.data(), rope_.sin.data(), batch.sink_positions.data()});
  }
  rope(q, tokens, heads, rope_rows_);
  rope(k, tokens, kv_heads, rope_rows_);
  backend_.store_kv(*kv_, index, k, v, tokens, batch.slots.data());

  AttentionShape shape;
  shape.num_seqs = batch.num_seqs();
  shape.query_starts = batch.query_starts.data();
  shape.context_lens = batch.context_lens.data();
  shape.block_tables = batch.block_tables.data();
  shape.block_table_stride = batch.block_table_stride;
  if (sink_q != nullptr) {
    shape.kv_sinks = batch.kv_sinks.data();
    shape.kv_windows = batch.kv_windows.data();
    shape.sink_q = sink_q;
  }
  AttentionParams params;
  params.num_heads = heads;
  params.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  params.window = layer.window;
  float* attended = attended_.rows(tokens, heads * head_dim);
  backend_.attention(q, *kv_, index, shape, params, attended);

  LinearTarget o = layer.o.to(x);
  o.accumulate = true;
  backend_.linear({attended, tokens}, {&o, 1});
}

void Decoder::rope(float* x, std::int64_t num_tokens, std::int64_t num_heads, const RopeRows& rows) {
  backend_.rope(x, num_tokens, num_heads, config_.head_dim, rope_.half_dim, rows.cos, rows.sin,
                rows.positions);
}

// A sequence that evicts may run past the table. Its rows are then computed for each batch, bit for bit as
// the table's are.
void Decoder::find_rope_rows(const Batch& batch) {
  rope_rows_ = {rope_.cos.data(), rope_.sin.data(), batch.positions.data()};
  const auto is_far = [&](std::int32_t position) { return position >= rope_.num_positions; };
  QUIRE_CHECK(std::none_of(batch.sink_positions.begin(), batch.sink_positions.end(), is_far))
      << "sinks and window are longer than the " << rope_.num_positions << " positions prepared";
  if (std::none_of(batch.positions.begin(), batch.positions.end(), is_far)) return;
  const std::int64_t half_dim = rope_.half_dim;
  float* cos = far_cos_.rows(batch.num_tokens(), half_dim);
  float* sin = far_sin_.rows(batch.num_tokens(), half_dim);
  far_rows_.resize(batch.positions.size());
  std::iota(far_rows_.begin(), far_rows_.end(), 0);
  for (std::size_t t = 0; t < batch.positions.size(); ++t) {
    const std::int64_t row = static_cast<std::int64_t>(t) * half_dim;
    fill_rope_row(rope_.frequencies, batch.positions[t], cos + row, sin + row);
  }
  rope_rows_ = {cos, sin, far_rows_.data()};
}

void Decoder::mlp_block(const Layer& layer, std::int64_t num_tokens, float* x) {
  float* activated = activated_.rows(num_tokens, config_.intermediate_size);
  LinearTarget up = layer.up.to(activated);
  up.gate = layer.gate.weight.get();
  up.gate_bias = layer.gate.bias.empty() ? nullptr : layer.gate.bias.data();
  backend_.linear({x, num_tokens, layer.mlp_norm.data(), static_cast<float>(config_.rms_norm_eps)}, {&up, 1});
  LinearTarget down = layer.down.to(x);
  down.accumulate = true;
  backend_.linear({activated, num_tokens}, {&down, 1});
}

Logits Decoder::forward(const Batch& batch) {
  QUIRE_CHECK(kv_ != nullptr) << "allocate_kv() comes first";
  const std::int64_t tokens = batch.num_tokens();
  const std::int64_t hidden = config_.hidden_size;
  float* x = x_.rows(tokens, hidden);
  find_rope_rows(batch);
  backend_.embed(*embedding_, batch.token_ids, x);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    attention_block(layers_[i], static_cast<std::int64_t>(i), batch, x);
    mlp_block(layers_[i], tokens, x);
  }
  const auto num_rows = static_cast<std::int64_t>(batch.logit_rows.size());
  float* picked = picked_.rows(num_rows, hidden);
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const float* from = x + batch.logit_rows[static_cast<std::size_t>(i)] * hidden;
    std::copy(from, from + hidden, picked + i * hidden);
  }
  float* logits = logits_.rows(num_rows, config_.vocab_size);
  LinearTarget head;
  head.weight = head_ ? head_.get() : embedding_.get();
  head.out = logits;
  head.finer_activations = true;
  backend_.linear({picked, num_rows, final_norm_.data(), static_cast<float>(config_.rms_norm_eps)},
                  {&head, 1});
  return {logits, num_rows, config_.vocab_size};
}

}  // namespace

Result<std::unique_ptr<Model>> load_decoder(const DecoderTraits& traits, ModelConfig config,
                                            const Checkpoint& checkpoint, Backend& backend,
                                            const LoadOptions& options) {
  auto decoder = std::make_unique<Decoder>(std::move(config), backend);
  QUIRE_RETURN_IF_ERROR(decoder->load(traits, checkpoint, options));
  return std::unique_ptr<Model>(std::move(decoder));
}

}  // namespace quire
