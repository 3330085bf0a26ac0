// quire tokenize MODEL_OR_GGUF: the ids of the text on standard input.
#include <cstdio>
#include <memory>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "loader/catalogue.h"
#include "loader/checkpoint.h"
#include "text/tokenizer.h"

namespace quire {
namespace {

struct TokenizeFlags {
  std::string model;
  bool json = false;
  bool no_special = false;
  bool literal = false;
  bool pieces = false;
};

Result<std::string> read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) text.append(buffer, n);
  if (std::ferror(stdin)) return make_error(ErrorCode::kIo, "cannot read standard input");
  return text;
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& model) {
  QUIRE_TRY(const std::string path, resolve_model(model));
  QUIRE_TRY(const auto checkpoint, open_checkpoint(path, /*allow_no_tensors=*/true));
  if (checkpoint->format == CheckpointFormat::kGguf) {
    return load_tokenizer_gguf(checkpoint->metadata, checkpoint->name);
  }
  if (checkpoint->tokenizer_json.empty()) {
    return make_error(ErrorCode::kNotFound, fmt::format("{} has no tokenizer.json", checkpoint->name));
  }
  return load_tokenizer_json(checkpoint->tokenizer_json, checkpoint->tokenizer_config_json,
                             checkpoint->name + "/tokenizer.json");
}

Status tokenize(const TokenizeFlags& flags) {
  QUIRE_TRY(const auto tokenizer, open_tokenizer(flags.model));
  QUIRE_TRY(const std::string text, read_standard_input());
  EncodeOptions options;
  options.add_special_tokens = !flags.no_special;
  options.parse_special = !flags.literal;
  const std::vector<TokenId> ids = tokenizer->encode(text, options);
  if (flags.json) {
    nlohmann::ordered_json out{{"ids", ids}};
    if (flags.pieces) {
      auto& pieces = out["pieces"] = nlohmann::ordered_json::array();
      for (TokenId id : ids) pieces.push_back(tokenizer->token_piece(id));
    }
    fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return {};
  }
  std::string out;
  for (TokenId id : ids) {
    if (flags.pieces) {
      // Quoted as JSON, so that a piece stays on its line.
      const nlohmann::json piece = tokenizer->token_piece(id);
      out += fmt::format("{} {}\n", id, piece.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
      out += fmt::format("{}{}", out.empty() ? "" : " ", id);
    }
  }
  if (!flags.pieces) out += "\n";
  std::fwrite(out.data(), 1, out.size(), stdout);
  return {};
}

}  // namespace

void add_tokenize_command(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = app.add_subcommand("tokenize", "Print the token ids of the text on standard input");
  command->add_option("model", flags->model, "A name of the catalogue, a GGUF file or a checkpoint folder")
      ->required();
  command->add_flag("--json", flags->json, "Print {\"ids\": [...]}");
  command->add_flag("--no-special", flags->no_special,
                    "Add nothing at the ends (such as the beginning-of-text token)");
  command->add_flag("--literal", flags->literal, "Take control tokens spelled in the text as plain text");
  command->add_flag("--pieces", flags->pieces, "Also print each token's vocabulary entry");
  command->callback([flags, exit_code] {
    const Status status = tokenize(*flags);
    *exit_code = status.ok() ? 0 : report_error(status.error());
  });
}

}  // namespace quire
