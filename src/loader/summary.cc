#include "loader/summary.h"

#include <algorithm>
#include <map>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace quire {
namespace {

using Json = nlohmann::json;

constexpr int kMaxJsonDepth = 64;

Result<Json> parse_side_file(const std::string& text, const std::string& path, const char* name) {
  bool too_deep = false;
  const auto limit = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxJsonDepth;
    return !too_deep;
  };
  Json json = Json::parse(text, limit, /*allow_exceptions=*/false);
  if (json.is_discarded() || too_deep || !json.is_object()) {
    return invalid(fmt::format("{}: {} is not a JSON object", path, name));
  }
  return json;
}

std::string text_at(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
}

void summarize_gguf(const Metadata& metadata, CheckpointSummary* out) {
  const auto text = [&](std::string_view key) {
    const std::string* value = metadata.get_string(key);
    return value == nullptr ? std::string() : *value;
  };
  out->architecture = text("general.architecture");
  out->title = text("general.name");
  out->context_length = metadata.get_int(out->architecture + ".context_length");
  out->tokenizer = text("tokenizer.ggml.model");
  const std::string pre = text("tokenizer.ggml.pre");
  if (!out->tokenizer.empty() && !pre.empty()) out->tokenizer += " (" + pre + ")";
  if (const auto* tokens = metadata.get_strings("tokenizer.ggml.tokens")) {
    out->vocabulary_size = static_cast<std::int64_t>(tokens->size());
  }
  if (const std::string* chat_template = metadata.get_string("tokenizer.chat_template")) {
    out->chat_template_bytes = static_cast<std::int64_t>(chat_template->size());
  }
}

// Unigram vocabularies are lists, the others are objects.
std::optional<std::int64_t> vocabulary_size(const Json& tokenizer) {
  const auto model = tokenizer.find("model");
  if (model == tokenizer.end() || !model->is_object() || !model->contains("vocab")) return std::nullopt;
  const Json& vocab = (*model)["vocab"];
  if (!vocab.is_object() && !vocab.is_array()) return std::nullopt;
  std::int64_t count = static_cast<std::int64_t>(vocab.size());
  const auto added = tokenizer.find("added_tokens");
  if (added == tokenizer.end() || !added->is_array()) return count;
  for (const Json& token : *added) {
    if (!token.is_object()) continue;
    const bool known = vocab.is_object() ? vocab.contains(text_at(token, "content"))
                                         : token.contains("id") && token["id"].is_number_unsigned() &&
                                               token["id"].get<std::uint64_t>() < vocab.size();
    if (!known) ++count;
  }
  return count;
}

Status summarize_folder(const Checkpoint& checkpoint, CheckpointSummary* out) {
  if (!checkpoint.config_json.empty()) {
    QUIRE_TRY(const Json config, parse_side_file(checkpoint.config_json, checkpoint.path, "config.json"));
    const auto architectures = config.find("architectures");
    if (architectures != config.end() && architectures->is_array() && !architectures->empty() &&
        (*architectures)[0].is_string()) {
      out->architecture = (*architectures)[0].get<std::string>();
    } else {
      out->architecture = text_at(config, "model_type");
    }
    const auto context = config.find("max_position_embeddings");
    if (context != config.end() && context->is_number_integer())
      out->context_length = context->get<std::int64_t>();
  }
  if (!checkpoint.tokenizer_json.empty()) {
    QUIRE_TRY(const Json tokenizer,
              parse_side_file(checkpoint.tokenizer_json, checkpoint.path, "tokenizer.json"));
    const auto model = tokenizer.find("model");
    if (model != tokenizer.end() && model->is_object()) out->tokenizer = text_at(*model, "type");
    if (out->tokenizer.empty()) out->tokenizer = "tokenizer.json";
    out->vocabulary_size = vocabulary_size(tokenizer);
  }
  if (!checkpoint.chat_template_jinja.empty()) {
    out->chat_template_bytes = static_cast<std::int64_t>(checkpoint.chat_template_jinja.size());
  } else if (!checkpoint.tokenizer_config_json.empty()) {
    QUIRE_TRY(const Json config,
              parse_side_file(checkpoint.tokenizer_config_json, checkpoint.path, "tokenizer_config.json"));
    const auto chat_template = config.find("chat_template");
    if (chat_template != config.end() && chat_template->is_string()) {
      out->chat_template_bytes =
          static_cast<std::int64_t>(chat_template->get_ref<const std::string&>().size());
    } else if (chat_template != config.end() && chat_template->is_array()) {
      // Several named templates: [{"name": ..., "template": ...}]; the one named "default" counts.
      for (const Json& item : *chat_template) {
        if (item.is_object() && text_at(item, "name") == "default") {
          out->chat_template_bytes = static_cast<std::int64_t>(text_at(item, "template").size());
        }
      }
    }
  }
  return {};
}

}  // namespace

Result<CheckpointSummary> summarize(const Checkpoint& checkpoint) {
  CheckpointSummary out;
  if (checkpoint.format == CheckpointFormat::kGguf) {
    summarize_gguf(checkpoint.metadata, &out);
  } else {
    QUIRE_RETURN_IF_ERROR(summarize_folder(checkpoint, &out));
  }
  std::map<std::string_view, CheckpointSummary::TypeUse> by_type;
  for (const TensorView& tensor : checkpoint.tensors->tensors()) {
    const std::string_view type = tensor_type_info(tensor.type).name;
    auto& use = by_type[type];
    use.type = type;
    ++use.num_tensors;
    use.num_values += tensor.num_values();
    use.bytes += tensor.data.size();
    out.num_parameters += tensor.num_values();
  }
  for (auto& [type, use] : by_type) out.types.push_back(std::move(use));
  std::stable_sort(out.types.begin(), out.types.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return out;
}

}  // namespace quire
