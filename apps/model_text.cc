#include "apps/model_text.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "api/json.h"
#include "loader/catalogue.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

Result<std::string> read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file.good()) return make_error(ErrorCode::kIo, fmt::format("cannot read {}", path));
  return text.str();
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const Checkpoint& checkpoint) {
  if (checkpoint.format == CheckpointFormat::kGguf) {
    return load_tokenizer_gguf(checkpoint.metadata, checkpoint.name);
  }
  if (checkpoint.tokenizer_json.empty()) {
    return make_error(
        ErrorCode::kNotFound,
        fmt::format("{} has no tokenizer.json; name another tokenizer with --tokenizer", checkpoint.name));
  }
  return load_tokenizer_json(checkpoint.tokenizer_json, checkpoint.tokenizer_config_json,
                             checkpoint.name + "/tokenizer.json");
}

struct TemplateSource {
  std::string text;    // "" = there is none
  std::string origin;  // for the report
};

// chat_template of tokenizer_config.json: a string, or a list of named ones, of which "default" is meant.
TemplateSource template_of_config(const std::string& config_json) {
  const Json config = Json::parse(config_json, nullptr, false);
  if (!config.is_object() || !config.contains("chat_template")) return {};
  const Json& value = config["chat_template"];
  if (value.is_string()) return {value.get<std::string>(), "tokenizer_config.json"};
  if (!value.is_array()) return {};
  for (const Json& entry : value) {
    if (entry.is_object() && entry.value("name", "") == "default" && entry.contains("template") &&
        entry["template"].is_string()) {
      return {entry["template"].get<std::string>(),
              fmt::format("tokenizer_config.json, \"default\" of {}", value.size())};
    }
  }
  return {};
}

Result<TemplateSource> find_template(const std::string& flag, const Checkpoint& checkpoint) {
  if (!flag.empty()) {
    std::error_code ignored;
    if (fs::is_regular_file(flag, ignored)) {
      QUIRE_TRY(std::string text, read_text_file(flag));
      return TemplateSource{std::move(text), "--chat-template, a file"};
    }
    if (flag.find("{{") != std::string::npos || flag.find("{%") != std::string::npos) {
      return TemplateSource{flag, "--chat-template, as given"};
    }
    return make_error(ErrorCode::kNotFound,
                      fmt::format("--chat-template: {} is neither a file nor the text of a template", flag),
                      "chat-template");
  }
  if (!checkpoint.chat_template_jinja.empty()) {
    return TemplateSource{checkpoint.chat_template_jinja, "chat_template.jinja"};
  }
  if (const std::string* text = checkpoint.metadata.get_string("tokenizer.chat_template")) {
    return TemplateSource{*text, "GGUF key tokenizer.chat_template"};
  }
  return template_of_config(checkpoint.tokenizer_config_json);
}

}  // namespace

Result<ModelText> load_model_text(const std::string& tokenizer_flag, const std::string& template_flag,
                                  const Checkpoint& checkpoint) {
  ModelText out;
  const auto report = [&out](std::string key, std::string line) {
    out.report.emplace_back(std::move(key), std::move(line));
  };
  if (tokenizer_flag.empty()) {
    QUIRE_TRY(out.tokenizer, open_tokenizer(checkpoint));
  } else {
    QUIRE_TRY(const std::string path, resolve_model(tokenizer_flag));
    QUIRE_TRY(const std::unique_ptr<Checkpoint> other, open_checkpoint(path, true));
    QUIRE_TRY(out.tokenizer, open_tokenizer(*other));
  }
  report("tokenizer", out.tokenizer->description() + (tokenizer_flag.empty() ? "" : ", by --tokenizer"));
  QUIRE_TRY(const TemplateSource source, find_template(template_flag, checkpoint));
  if (source.text.empty()) {
    out.chat_template_problem = "This model has no chat template.";
    report("chat template", "none: chat requests are refused; give one with --chat-template");
    return out;
  }
  auto parsed = ChatTemplate::parse(source.text);
  if (!parsed.ok()) {
    if (!template_flag.empty()) {
      return make_error(ErrorCode::kInvalid, "--chat-template: " + parsed.error().message, "chat-template");
    }
    out.chat_template_problem = "This model's chat template cannot be used (" + parsed.error().message + ").";
    report("chat template", fmt::format("from {}, refused: {}; chat requests are refused too", source.origin,
                                        parsed.error().message));
    return out;
  }
  out.chat_template = std::move(*parsed);
  report("chat template", fmt::format("from {}, {} bytes", source.origin, source.text.size()));
  return out;
}

}  // namespace quire
