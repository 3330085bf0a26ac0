#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace quire {
namespace {

using Json = nlohmann::json;

// No field of a model's sizes needs more; keeps every product of two of them inside int64.
constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

// Reads numbers of config.json by name, remembering the first that is wrong.
class JsonFields {
 public:
  JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

  std::int64_t integer(const char* key, std::int64_t fallback) {
    if (!has(key)) return fallback;
    const Json& value = object_.at(key);
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > kMaxSize)) {
      fail(key, "a whole number");
      return fallback;
    }
    return value.get<std::int64_t>();
  }
  std::int64_t required_integer(const char* key) {
    if (!has(key) && error_.message.empty())
      error_ = invalid(fmt::format("{} has no \"{}\"", where_, key), key);
    return integer(key, 0);
  }
  double number(const char* key, double fallback) {
    if (!has(key)) return fallback;
    if (!object_.at(key).is_number()) {
      fail(key, "a number");
      return fallback;
    }
    return object_.at(key).get<double>();
  }
  bool boolean(const char* key, bool fallback) {
    if (!has(key)) return fallback;
    if (!object_.at(key).is_boolean()) {
      fail(key, "true or false");
      return fallback;
    }
    return object_.at(key).get<bool>();
  }
  std::string text(const char* key) {
    if (!has(key)) return {};
    if (!object_.at(key).is_string()) {
      fail(key, "a string");
      return {};
    }
    return object_.at(key).get<std::string>();
  }
  // One id or a list of them.
  std::vector<std::int32_t> ids(const char* key) {
    std::vector<std::int32_t> ids;
    if (!has(key)) return ids;
    const Json& value = object_.at(key);
    auto take = [&](const Json& id) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= kMaxSize) {
        fail(key, "a token id or a list of them");
      } else {
        ids.push_back(static_cast<std::int32_t>(id.get<std::int64_t>()));
      }
    };
    if (value.is_array()) {
      for (const Json& id : value) take(id);
    } else {
      take(value);
    }
    return ids;
  }
  const Json& object() const { return object_; }
  Status status() const { return error_.message.empty() ? Status() : Status(error_); }
  void fail(const char* key, const char* wanted) {
    if (error_.message.empty()) {
      error_ =
          invalid(fmt::format("{}: \"{}\" is {}, but must be {}", where_, key,
                              object_.at(key).dump(-1, ' ', false, Json::error_handler_t::replace), wanted),
                  key);
    }
  }

 private:
  const Json& object_;
  std::string where_;
  Error error_;
};

Result<Json> parse_object(const std::string& text, const std::string& where) {
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded() || !parsed.is_object()) {
    return invalid(fmt::format("{} is not a JSON object", where));
  }
  return parsed;
}

Result<RopeScaling> read_rope_scaling(const Json& object, const std::string& where) {
  RopeScaling scaling;
  JsonFields fields(object, where + ": rope_scaling");
  std::string type = fields.text("rope_type");
  if (type.empty()) type = fields.text("type");  // its name before transformers 4.43
  scaling.factor = fields.number("factor", 1.0);
  scaling.original_context = fields.number("original_max_position_embeddings", 0);
  scaling.beta_fast = fields.number("beta_fast", 32.0);
  scaling.beta_slow = fields.number("beta_slow", 1.0);
  scaling.attention_factor = fields.number("attention_factor", 0);
  scaling.mscale = fields.number("mscale", 0);
  scaling.mscale_all_dim = fields.number("mscale_all_dim", 0);
  scaling.low_freq_factor = fields.number("low_freq_factor", 1.0);
  scaling.high_freq_factor = fields.number("high_freq_factor", 4.0);
  QUIRE_RETURN_IF_ERROR(fields.status());
  if (type.empty() || type == "default" || type == "none") {
    scaling.type = RopeScalingType::kNone;
  } else if (type == "linear") {
    scaling.type = RopeScalingType::kLinear;
  } else if (type == "dynamic") {
    scaling.type = RopeScalingType::kDynamic;
  } else if (type == "yarn") {
    scaling.type = RopeScalingType::kYarn;
  } else if (type == "llama3") {
    scaling.type = RopeScalingType::kLlama3;
  } else {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("{}: rope scaling \"{}\" is not supported (none, linear, dynamic, yarn, llama3 are)",
                    where, type));
  }
  if (!(scaling.factor >= 1.0) || !std::isfinite(scaling.factor)) {
    return invalid(
        fmt::format("{}: the rope scaling factor is {}, but must be 1 or more", where, scaling.factor));
  }
  if (scaling.type == RopeScalingType::kLlama3 && !(scaling.high_freq_factor > scaling.low_freq_factor)) {
    return invalid(fmt::format("{}: high_freq_factor must be greater than low_freq_factor", where));
  }
  return scaling;
}

void add_ids(std::vector<std::int32_t>* to, const std::vector<std::int32_t>& ids) {
  for (std::int32_t id : ids) {
    if (std::find(to->begin(), to->end(), id) == to->end()) to->push_back(id);
  }
}

Status read_generation_config(const std::string& text, ModelConfig* config) {
  if (text.empty()) return {};
  QUIRE_TRY(const Json object, parse_object(text, "generation_config.json"));
  JsonFields fields(object, "generation_config.json");
  add_ids(&config->eos_ids, fields.ids("eos_token_id"));
  // "do_sample": false means greedy, whatever the other fields say.
  config->default_temperature = fields.boolean("do_sample", true) ? fields.number("temperature", -1)
                                                                  : (fields.has("do_sample") ? 0.0 : -1);
  config->default_top_p = fields.number("top_p", -1);
  config->default_top_k = fields.integer("top_k", -1);
  config->default_min_p = fields.number("min_p", -1);
  config->default_repetition_penalty = fields.number("repetition_penalty", -1);
  return fields.status();
}

Result<ModelConfig> from_json(const Checkpoint& checkpoint) {
  if (checkpoint.config_json.empty()) {
    return invalid(fmt::format("{}: there is no config.json beside the weights", checkpoint.name));
  }
  const std::string where = "config.json";
  QUIRE_TRY(const Json object, parse_object(checkpoint.config_json, where));
  JsonFields fields(object, where);
  ModelConfig config;
  config.architecture = fields.text("model_type");
  config.vocab_size = fields.required_integer("vocab_size");
  config.hidden_size = fields.required_integer("hidden_size");
  config.intermediate_size = fields.required_integer("intermediate_size");
  config.num_layers = fields.required_integer("num_hidden_layers");
  config.num_heads = fields.required_integer("num_attention_heads");
  config.num_kv_heads = fields.integer("num_key_value_heads", config.num_heads);
  const std::int64_t default_head_dim = config.num_heads > 0 ? config.hidden_size / config.num_heads : 0;
  config.head_dim = fields.integer("head_dim", default_head_dim);
  config.context_length = fields.integer("max_position_embeddings", 2048);  // transformers' default for Llama
  config.rms_norm_eps = fields.number("rms_norm_eps", 1e-6);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  config.rope_theta = fields.number("rope_theta", 10000.0);
  const double partial = fields.number("partial_rotary_factor", 1.0);
  if (!(partial > 0 && partial <= 1)) {
    return invalid(fmt::format("config.json: partial_rotary_factor is {}, but must be in (0, 1]", partial));
  }
  config.rope_dim = static_cast<std::int64_t>(static_cast<double>(config.head_dim) * partial);
  // transformers 5 moved theta and the scaling into rope_parameters.
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!fields.has(key)) continue;
    if (!object.at(key).is_object())
      return invalid(fmt::format("config.json: \"{}\" is not an object", key), key);
    QUIRE_TRY(config.rope_scaling, read_rope_scaling(object.at(key), where));
    JsonFields rope(object.at(key), where + ": " + key);
    config.rope_theta = rope.number("rope_theta", config.rope_theta);
    QUIRE_RETURN_IF_ERROR(rope.status());
  }
  // Hugging Face's max_position_embeddings is the length before these scalings (vLLM reads it so too).
  RopeScaling& scaling = config.rope_scaling;
  if (scaling.type == RopeScalingType::kYarn || scaling.type == RopeScalingType::kLinear ||
      scaling.type == RopeScalingType::kDynamic) {
    if (scaling.original_context <= 0) scaling.original_context = static_cast<double>(config.context_length);
    const double stretched = scaling.original_context * scaling.factor;
    if (stretched > static_cast<double>(config.context_length) && stretched < static_cast<double>(kMaxSize)) {
      config.context_length = static_cast<std::int64_t>(stretched);
    }
  }
  if (fields.boolean("use_sliding_window", config.architecture == "mistral")) {
    config.sliding_window = fields.integer("sliding_window", 0);
    config.full_attention_layers = fields.integer("max_window_layers", 0);
  }
  const std::string activation = fields.text("hidden_act");
  if (!activation.empty() && activation != "silu" && activation != "swish") {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("config.json: hidden_act \"{}\" is not supported (silu is)", activation));
  }
  config.torch_dtype = fields.text("torch_dtype");
  if (config.torch_dtype.empty()) config.torch_dtype = fields.text("dtype");
  add_ids(&config.eos_ids, fields.ids("eos_token_id"));
  const auto bos = fields.ids("bos_token_id");
  if (!bos.empty()) config.bos_id = bos.front();
  QUIRE_RETURN_IF_ERROR(fields.status());
  QUIRE_RETURN_IF_ERROR(read_generation_config(checkpoint.generation_config_json, &config));
  return config;
}

// GGUF keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
class GgufFields {
 public:
  GgufFields(const Metadata& metadata, std::string architecture)
      : metadata_(metadata), architecture_(std::move(architecture)) {}
  std::string key(const char* name) const { return architecture_ + "." + name; }
  std::optional<std::int64_t> integer(const char* name) const { return metadata_.get_int(key(name)); }
  std::optional<double> number(const char* name) const { return metadata_.get_float(key(name)); }
  std::int64_t required_integer(const char* name) {
    const auto value = integer(name);
    if (!value && error_.message.empty()) {
      error_ = invalid(fmt::format("the GGUF file has no whole-number key {}", key(name)));
    }
    return value.value_or(0);
  }
  Status status() const { return error_.message.empty() ? Status() : Status(error_); }

 private:
  const Metadata& metadata_;
  std::string architecture_;
  Error error_;
};

Result<ModelConfig> from_gguf(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata;
  const std::string* architecture = metadata.get_string("general.architecture");
  if (architecture == nullptr) return invalid("the GGUF file has no key general.architecture");
  GgufFields fields(metadata, *architecture);
  ModelConfig config;
  config.architecture = *architecture;
  config.hidden_size = fields.required_integer("embedding_length");
  config.num_layers = fields.required_integer("block_count");
  config.intermediate_size = fields.required_integer("feed_forward_length");
  config.num_heads = fields.required_integer("attention.head_count");
  config.num_kv_heads = fields.integer("attention.head_count_kv").value_or(config.num_heads);
  config.head_dim = fields.integer("attention.key_length")
                        .value_or(config.num_heads > 0 ? config.hidden_size / config.num_heads : 0);
  const std::int64_t value_length = fields.integer("attention.value_length").value_or(config.head_dim);
  config.rope_dim = fields.integer("rope.dimension_count").value_or(config.head_dim);
  config.context_length = fields.required_integer("context_length");
  config.rms_norm_eps = fields.number("attention.layer_norm_rms_epsilon").value_or(1e-6);
  config.rope_theta = fields.number("rope.freq_base").value_or(10000.0);
  config.sliding_window = fields.integer("attention.sliding_window").value_or(0);
  QUIRE_RETURN_IF_ERROR(fields.status());
  if (value_length != config.head_dim) {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("attention.key_length {} and attention.value_length {} differ, which is not supported",
                    config.head_dim, value_length));
  }

  const std::string* scaling = metadata.get_string(fields.key("rope.scaling.type"));
  config.rope_scaling.factor = fields.number("rope.scaling.factor").value_or(1.0);
  config.rope_scaling.original_context = fields.number("rope.scaling.original_context_length").value_or(0);
  if (scaling != nullptr && *scaling == "linear") {
    config.rope_scaling.type = RopeScalingType::kLinear;
  } else if (scaling != nullptr && *scaling == "yarn") {
    config.rope_scaling.type = RopeScalingType::kYarn;
    config.rope_scaling.beta_fast = fields.number("rope.scaling.yarn_beta_fast").value_or(32.0);
    config.rope_scaling.beta_slow = fields.number("rope.scaling.yarn_beta_slow").value_or(1.0);
    // ggml multiplies its own YaRN factor 0.1 ln(s) + 1 by attn_factor.
    if (const auto factor = fields.number("rope.scaling.attn_factor");
        factor && config.rope_scaling.factor > 0) {
      config.rope_scaling.attention_factor = *factor * (0.1 * std::log(config.rope_scaling.factor) + 1.0);
    }
  } else if (scaling != nullptr && *scaling != "none") {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("rope scaling \"{}\" is not supported (none, linear, yarn are in GGUF)", *scaling));
  } else if (const auto old = fields.number("rope.scale_linear"); old && *old > 1.0) {
    config.rope_scaling.type = RopeScalingType::kLinear;
    config.rope_scaling.factor = *old;
  } else {
    config.rope_scaling.factor = 1.0;
  }
  if (!(config.rope_scaling.factor >= 1.0) || !std::isfinite(config.rope_scaling.factor)) {
    return invalid(
        fmt::format("the rope scaling factor is {}, but must be 1 or more", config.rope_scaling.factor));
  }

  const TensorView* embedding = checkpoint.tensors ? checkpoint.tensors->find("token_embd.weight") : nullptr;
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return invalid("the GGUF file has no matrix token_embd.weight");
  }
  config.vocab_size = embedding->shape[0];
  config.tie_word_embeddings = checkpoint.tensors->find("output.weight") == nullptr;
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (const auto id = metadata.get_int(key); id && *id >= 0 && *id < config.vocab_size) {
      add_ids(&config.eos_ids, {static_cast<std::int32_t>(*id)});
    }
  }
  if (const auto id = metadata.get_int("tokenizer.ggml.bos_token_id");
      id && *id >= 0 && *id < config.vocab_size) {
    config.bos_id = static_cast<std::int32_t>(*id);
  }
  config.default_temperature = metadata.get_float("general.sampling.temp").value_or(-1);
  config.default_top_p = metadata.get_float("general.sampling.top_p").value_or(-1);
  config.default_top_k = metadata.get_int("general.sampling.top_k").value_or(-1);
  config.default_min_p = metadata.get_float("general.sampling.min_p").value_or(-1);
  config.default_repetition_penalty = metadata.get_float("general.sampling.penalty_repeat").value_or(-1);
  return config;
}

Status check_sizes(const ModelConfig& config) {
  const struct {
    const char* name;
    std::int64_t value;
  } sizes[] = {{"vocabulary size", config.vocab_size},
               {"hidden size", config.hidden_size},
               {"intermediate size", config.intermediate_size},
               {"number of layers", config.num_layers},
               {"number of attention heads", config.num_heads},
               {"number of key-value heads", config.num_kv_heads},
               {"head size", config.head_dim},
               {"context length", config.context_length}};
  for (const auto& size : sizes) {
    if (size.value <= 0 || size.value >= kMaxSize) {
      return invalid(fmt::format("the model's configuration gives {} as its {}, which makes no sense",
                                 size.value, size.name));
    }
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    return invalid(fmt::format("{} attention heads cannot share {} key-value heads evenly", config.num_heads,
                               config.num_kv_heads));
  }
  if (config.rope_dim <= 0 || config.rope_dim > config.head_dim || config.rope_dim % 2 != 0) {
    return invalid(fmt::format("{} values of a head of {} cannot be rotated in pairs", config.rope_dim,
                               config.head_dim));
  }
  if (!(config.rms_norm_eps >= 0) || !(config.rope_theta > 0) || !std::isfinite(config.rope_theta)) {
    return invalid(fmt::format("rms_norm_eps {} or rope_theta {} makes no sense", config.rms_norm_eps,
                               config.rope_theta));
  }
  return {};
}

}  // namespace

Result<ModelConfig> read_model_config(const Checkpoint& checkpoint) {
  auto config = checkpoint.format == CheckpointFormat::kGguf ? from_gguf(checkpoint) : from_json(checkpoint);
  if (!config.ok()) return config;
  QUIRE_RETURN_IF_ERROR(check_sizes(*config));
  std::erase_if(config->eos_ids, [&](std::int32_t id) { return id >= config->vocab_size; });
  return config;
}

}  // namespace quire
