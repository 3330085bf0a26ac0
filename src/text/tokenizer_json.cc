// load_tokenizer_json: a Hugging Face tokenizer.json (and tokenizer_config.json) as a pipeline.
#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "base/log.h"
#include "text/bpe.h"
#include "text/pipeline_tokenizer.h"
#include "text/tokenizer_json_parts.h"
#include "text/tokenizer_json_reader.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

namespace quire {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxTokens = 1u << 24;
// Ids that name no token: padding between vocabulary and added tokens. Real files have a few hundred.
constexpr std::int64_t kMaxHoles = 1 << 16;

class JsonTokenizerLoader {
 public:
  JsonTokenizerLoader(TokenizerJson file, json config, const std::string& where)
      : file_(std::move(file)), config_(std::move(config)), where_(where) {
    if (!config_.is_object()) config_ = json::object();
  }

  Result<std::unique_ptr<Tokenizer>> load() {
    const json* model = object_of("model");
    if (model == nullptr) return error("has no \"model\" object");
    model_ = *model;
    QUIRE_RETURN_IF_ERROR(find_type());
    QUIRE_RETURN_IF_ERROR(read_added_tokens());
    QUIRE_RETURN_IF_ERROR(build_vocabulary());
    QUIRE_TRY(parts_.normalizer, normalizer_from_json(member("normalizer"), where_ + ": normalizer"));
    QUIRE_TRY(PreTokenizerConfig pre,
              pre_tokenizer_from_json(member("pre_tokenizer"), where_ + ": pre_tokenizer"));
    byte_level_ = type_ == "BPE" && pre.ends_in_bytes;
    if (pre.ends_in_bytes && !byte_level_) pre.steps.push_back(make_byte_chars_step());
    if (!pre.steps.empty()) parts_.pre_tokenizer = make_sequence_step(std::move(pre.steps));
    if (!pre.summary.empty()) parts_.description = "pre-tokenizer " + pre.summary;
    if (parts_.normalizer != nullptr) {
      QUIRE_TRY(const std::string type, json_string(member("normalizer"), "type", "", "normalizer"));
      parts_.description += (parts_.description.empty() ? "normalizer " : ", normalizer ") + type;
    }
    QUIRE_TRY(parts_.decoder, decoder_from_json(member("decoder"), where_ + ": decoder"));
    QUIRE_RETURN_IF_ERROR(build_model());
    QUIRE_RETURN_IF_ERROR(read_named_tokens());
    QUIRE_RETURN_IF_ERROR(read_ends());
    for (const AddedToken& token : parts_.added_tokens) {
      if (token.special && is_end_of_turn(token.content)) parts_.end_ids.push_back(token.id);
    }
    parts_.vocabulary = vocabulary_;
    std::unique_ptr<Tokenizer> tokenizer = std::make_unique<PipelineTokenizer>(std::move(parts_));
    return tokenizer;
  }

 private:
  Error error(std::string_view message) const { return invalid(fmt::format("{}: {}", where_, message)); }

  const json& member(const char* name) const {
    static const json kNull;
    const auto it = file_.rest.find(name);
    return it == file_.rest.end() ? kNull : *it;
  }
  const json* object_of(const char* name) const {
    const json& value = member(name);
    return value.is_object() ? &value : nullptr;
  }

  Status find_type() {
    QUIRE_TRY(type_, json_string(model_, "type", "", where_ + ": model"));
    if (type_.empty()) {  // files of before the field existed
      if (file_.has_merges) {
        type_ = "BPE";
      } else if (file_.vocab_is_list) {
        type_ = "Unigram";
      } else {
        type_ = model_.contains("max_input_chars_per_word") ? "WordPiece" : "WordLevel";
      }
    }
    if (type_ != "BPE" && type_ != "Unigram" && type_ != "WordPiece" && type_ != "WordLevel") {
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("{}: model type \"{}\" is not supported (known: BPE, Unigram, WordPiece, "
                                    "WordLevel)",
                                    where_, type_));
    }
    if ((type_ == "Unigram") != file_.vocab_is_list) {
      return error(fmt::format("model.vocab of a {} model is not {}", type_,
                               type_ == "Unigram" ? "a list of pieces with scores" : "an object"));
    }
    return {};
  }

  Result<AddedToken> added_token(const json& entry, const std::string& path) const {
    if (!entry.is_object()) return error(path + " is not an object");
    AddedToken token;
    QUIRE_TRY(token.content, json_string(entry, "content", "", where_ + ": " + path));
    if (token.content.empty()) return error(path + " has no content");
    const std::string at = where_ + ": " + path;
    QUIRE_TRY(token.special, json_bool(entry, "special", false, at));
    QUIRE_TRY(token.single_word, json_bool(entry, "single_word", false, at));
    QUIRE_TRY(token.lstrip, json_bool(entry, "lstrip", false, at));
    QUIRE_TRY(token.rstrip, json_bool(entry, "rstrip", false, at));
    QUIRE_TRY(token.normalized, json_bool(entry, "normalized", !token.special, at));
    return token;
  }

  static bool is_id(std::int64_t id) { return id >= 0 && id < static_cast<std::int64_t>(kMaxTokens); }
  Error bad_id(std::int64_t id, const std::string& what) const {
    return error(fmt::format("{} has the id {}; ids go from 0 to {}", what, id, kMaxTokens - 1));
  }

  Status read_added_tokens() {
    const json& list = member("added_tokens");
    if (!list.is_null()) {
      if (!list.is_array()) return error("added_tokens is not an array");
      for (std::size_t i = 0; i < list.size(); ++i) {
        const std::string path = fmt::format("added_tokens[{}]", i);
        QUIRE_TRY(AddedToken token, added_token(list[i], path));
        QUIRE_TRY(const std::int64_t id, json_int(list[i], "id", -1, where_ + ": " + path));
        if (!is_id(id)) return bad_id(id, path);
        token.id = static_cast<TokenId>(id);
        parts_.added_tokens.push_back(std::move(token));
      }
    }
    // tokenizer_config.json repeats them by id, and may have more.
    const auto decoder = config_.find("added_tokens_decoder");
    if (decoder == config_.end() || !decoder->is_object()) return {};
    for (const auto& [key, entry] : decoder->items()) {
      const std::string path = fmt::format("added_tokens_decoder[\"{}\"] of tokenizer_config.json", key);
      std::int64_t id = -1;
      if (!key.empty() && key.size() <= 8 && key.find_first_not_of("0123456789") == std::string::npos) {
        id = std::stoll(key);
      }
      if (!is_id(id)) return bad_id(id, path);
      QUIRE_TRY(AddedToken token, added_token(entry, path));
      token.id = static_cast<TokenId>(id);
      const bool known = std::any_of(
          parts_.added_tokens.begin(), parts_.added_tokens.end(),
          [&](const AddedToken& other) { return other.id == token.id || other.content == token.content; });
      if (!known) parts_.added_tokens.push_back(std::move(token));
    }
    return {};
  }

  Status build_vocabulary() {
    const std::size_t count = file_.pieces.size();
    if (count > kMaxTokens) return error(fmt::format("model.vocab has {} entries, too many", count));
    std::int64_t highest = file_.vocab_is_list ? static_cast<std::int64_t>(count) - 1 : -1;
    for (std::size_t n = 0; n < file_.ids.size(); ++n) {
      const std::int64_t id = file_.ids[n];
      if (!is_id(id)) return bad_id(id, fmt::format("model.vocab[\"{}\"]", file_.pieces[n]));
      highest = std::max(highest, id);
    }
    for (const AddedToken& token : parts_.added_tokens) {
      highest = std::max<std::int64_t>(highest, token.id);
    }
    const auto known = static_cast<std::int64_t>(count + parts_.added_tokens.size());
    if (known == 0) return error("the vocabulary is empty");
    if (highest + 1 > known + kMaxHoles) {
      return error(fmt::format("the highest id is {}, but there are only {} tokens", highest, known));
    }
    const auto size = static_cast<std::size_t>(highest + 1);
    vocabulary_->kinds.assign(size, TokenKind::kAbsent);
    std::vector<std::string_view> pieces(size);  // by id
    for (std::size_t n = 0; n < count; ++n) {
      const std::string_view piece = file_.pieces[n];
      const auto id = file_.vocab_is_list ? n : static_cast<std::size_t>(file_.ids[n]);
      if (vocabulary_->kinds[id] != TokenKind::kAbsent && pieces[id] != piece) {
        return error(fmt::format("id {} belongs to both \"{}\" and \"{}\"", id, pieces[id], piece));
      }
      pieces[id] = piece;
      vocabulary_->kinds[id] = TokenKind::kNormal;
    }
    if (file_.vocab_is_list) {
      vocabulary_->scores.assign(size, 0.0f);
      for (std::size_t i = 0; i < count; ++i) {
        if (!std::isfinite(file_.scores[i])) {
          return error(fmt::format("the score of model.vocab[{}] is not a finite number", i));
        }
        vocabulary_->scores[i] = static_cast<float>(file_.scores[i]);
      }
    }
    std::vector<TokenId> new_ids;  // of added tokens that model.vocab does not have
    for (const AddedToken& token : parts_.added_tokens) {
      std::string_view& piece = pieces[static_cast<std::size_t>(token.id)];
      if (vocabulary_->kind(token.id) == TokenKind::kAbsent && piece.empty()) {
        piece = token.content;
        new_ids.push_back(token.id);
      } else if (piece != token.content) {
        return error(fmt::format("id {} belongs to both \"{}\" and the added token \"{}\"", token.id, piece,
                                 token.content));
      }
    }
    std::size_t total = 0;
    for (std::string_view piece : pieces) total += piece.size();
    vocabulary_->pieces.reserve(size, total);
    for (std::string_view piece : pieces) vocabulary_->pieces.push_back(piece);
    vocabulary_->build_index();
    QUIRE_RETURN_IF_ERROR(set_kinds_of_added_tokens());
    std::sort(new_ids.begin(), new_ids.end());
    for (TokenId id : new_ids) vocabulary_->add_to_index(id);
    return {};
  }

  Status set_kinds_of_added_tokens() {
    for (AddedToken& token : parts_.added_tokens) {
      if (const auto there = vocabulary_->find(token.content); there && *there != token.id) {
        return error(fmt::format("added token \"{}\" has the id {}, but the vocabulary gives it {}",
                                 token.content, token.id, *there));
      }
      if (!token.special && is_turn_marker(token.content)) {
        log_info("{}: token {} ({}) marks turns and is treated as a control token", where_, token.id,
                 token.content);
        token.special = true;
      }
      vocabulary_->kinds[static_cast<std::size_t>(token.id)] =
          token.special ? TokenKind::kControl : TokenKind::kUserDefined;
    }
    return {};
  }

  Result<std::optional<TokenId>> unk_token() {
    QUIRE_TRY(const std::string name, json_string(model_, "unk_token", "", where_ + ": model"));
    if (name.empty()) return std::optional<TokenId>();
    const auto id = vocabulary_->find(name);
    if (!id) return error(fmt::format("model.unk_token is \"{}\", which is not in the vocabulary", name));
    return id;
  }

  void mark_byte_tokens() {
    for (std::size_t id = 0; id < vocabulary_->pieces.size(); ++id) {
      if (vocabulary_->kinds[id] == TokenKind::kNormal && byte_of_piece(vocabulary_->pieces[id])) {
        vocabulary_->kinds[id] = TokenKind::kByte;
      }
    }
  }

  Status build_model() {
    const std::string path = where_ + ": model";
    if (type_ == "BPE") return build_bpe(path);
    if (type_ == "WordLevel") {
      QUIRE_TRY(const auto unk, unk_token());
      parts_.model = std::make_unique<WordLevelModel>(vocabulary_, unk);
      return {};
    }
    if (type_ == "WordPiece") {
      WordPieceOptions options;
      QUIRE_TRY(options.unk, unk_token());
      QUIRE_TRY(options.continuing_prefix, json_string(model_, "continuing_subword_prefix", "##", path));
      QUIRE_TRY(const std::int64_t longest, json_int(model_, "max_input_chars_per_word", 100, path));
      options.max_input_chars_per_word =
          static_cast<std::size_t>(std::clamp<std::int64_t>(longest, 0, 1 << 20));
      parts_.model = std::make_unique<WordPieceModel>(vocabulary_, std::move(options));
      return {};
    }
    UnigramOptions options;
    QUIRE_TRY(options.byte_fallback, json_bool(model_, "byte_fallback", false, path));
    QUIRE_TRY(const std::int64_t unk, json_int(model_, "unk_id", -1, path));
    if (unk >= static_cast<std::int64_t>(file_.scores.size()) || unk < -1) {
      return error(fmt::format("model.unk_id is {}, outside the vocabulary", unk));
    }
    if (unk >= 0) {
      options.unk = static_cast<TokenId>(unk);
      TokenKind& kind = vocabulary_->kinds[static_cast<std::size_t>(unk)];
      if (kind == TokenKind::kNormal) kind = TokenKind::kUnknown;
    }
    if (options.byte_fallback) mark_byte_tokens();
    parts_.model = std::make_unique<UnigramModel>(vocabulary_, options);
    return {};
  }

  Status build_bpe(const std::string& path) {
    BpeOptions options;
    options.byte_level = byte_level_;
    QUIRE_TRY(options.unk, unk_token());
    QUIRE_TRY(options.ignore_merges, json_bool(model_, "ignore_merges", false, path));
    QUIRE_TRY(options.byte_fallback, json_bool(model_, "byte_fallback", false, path));
    QUIRE_TRY(options.fuse_unk, json_bool(model_, "fuse_unk", false, path));
    QUIRE_TRY(options.continuing_subword_prefix, json_string(model_, "continuing_subword_prefix", "", path));
    QUIRE_TRY(options.end_of_word_suffix, json_string(model_, "end_of_word_suffix", "", path));
    const auto dropout = model_.find("dropout");
    if (dropout != model_.end() && dropout->is_number() && dropout->get<double>() != 0.0) {
      return make_error(ErrorCode::kUnsupported,
                        path + ".dropout is set: encoding would be random; remove it from the file");
    }
    if (byte_level_ && !(options.continuing_subword_prefix.empty() && options.end_of_word_suffix.empty())) {
      return make_error(ErrorCode::kUnsupported,
                        path + ": a byte-level model with a subword prefix or suffix is not supported");
    }
    if (options.byte_fallback) mark_byte_tokens();
    std::vector<BpeModel::Merge> merges;
    merges.reserve(file_.merges.size() / 2);
    for (std::size_t i = 0; i + 1 < file_.merges.size(); i += 2) {
      merges.emplace_back(file_.merges[i], file_.merges[i + 1]);
    }
    QUIRE_TRY(parts_.model, BpeModel::from_merges(vocabulary_, merges, std::move(options), where_));
    return {};
  }

  // tokenizer_config.json: "bos_token" is a string or an object with "content".
  Result<std::optional<TokenId>> named_token(const char* name) {
    const auto it = config_.find(name);
    if (it == config_.end() || it->is_null()) return std::optional<TokenId>();
    std::string content;
    if (it->is_string()) {
      content = it->get<std::string>();
    } else if (it->is_object()) {
      QUIRE_TRY(content, json_string(*it, "content", "", fmt::format("tokenizer_config.json: {}", name)));
    } else {
      return error(fmt::format("{} of tokenizer_config.json is neither a string nor an object", name));
    }
    if (content.empty()) return std::optional<TokenId>();
    const auto id = vocabulary_->find(content);
    if (!id) {
      log_warning(
          "{}: {} of tokenizer_config.json is \"{}\", which the vocabulary does not have; it is ignored",
          where_, name, content);
      return std::optional<TokenId>();
    }
    return id;
  }

  Status read_named_tokens() {
    QUIRE_TRY(parts_.bos, named_token("bos_token"));
    QUIRE_TRY(parts_.eos, named_token("eos_token"));
    QUIRE_TRY(parts_.pad, named_token("pad_token"));
    return {};
  }

  // The post-processor decides what goes at the ends; add_bos_token and add_eos_token, where present,
  // overrule.
  Status read_ends() {
    QUIRE_TRY(EndTokens ends,
              post_processor_from_json(member("post_processor"), where_ + ": post_processor"));
    for (const auto* list : {&ends.prefix, &ends.suffix}) {
      for (TokenId id : *list) {
        if (!vocabulary_->contains(id)) {
          return error(fmt::format("the post-processor adds the id {}, which is not in the vocabulary", id));
        }
      }
    }
    const std::string path = "tokenizer_config.json";
    if (parts_.bos) {
      const bool has = std::find(ends.prefix.begin(), ends.prefix.end(), *parts_.bos) != ends.prefix.end();
      QUIRE_TRY(const bool wanted, json_bool(config_, "add_bos_token", has, path));
      if (wanted && !has) ends.prefix.insert(ends.prefix.begin(), *parts_.bos);
      if (!wanted && has) std::erase(ends.prefix, *parts_.bos);
    }
    if (parts_.eos) {
      const bool has = std::find(ends.suffix.begin(), ends.suffix.end(), *parts_.eos) != ends.suffix.end();
      QUIRE_TRY(const bool wanted, json_bool(config_, "add_eos_token", has, path));
      if (wanted && !has) ends.suffix.push_back(*parts_.eos);
      if (!wanted && has) std::erase(ends.suffix, *parts_.eos);
    }
    parts_.prefix = std::move(ends.prefix);
    parts_.suffix = std::move(ends.suffix);
    return {};
  }

  TokenizerJson file_;
  json config_, model_;
  const std::string& where_;
  std::string type_;
  bool byte_level_ = false;
  std::shared_ptr<Vocabulary> vocabulary_ = std::make_shared<Vocabulary>();
  PipelineParts parts_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer_json(std::string_view tokenizer_json,
                                                       std::string_view tokenizer_config_json,
                                                       const std::string& where) {
  QUIRE_TRY(TokenizerJson file, read_tokenizer_json(tokenizer_json, where));
  nlohmann::json config;
  if (!tokenizer_config_json.empty()) {
    QUIRE_TRY(config, read_json(tokenizer_config_json, where + " (tokenizer_config.json beside it)"));
  }
  return JsonTokenizerLoader(std::move(file), std::move(config), where).load();
}

}  // namespace quire
