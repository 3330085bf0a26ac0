// load_tokenizer_gguf: the tokenizer.ggml.* keys (GGUF specification; surfaces of llama.cpp) as a pipeline.
#include <algorithm>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "text/bpe.h"
#include "text/gguf_pre_tokenizers.h"
#include "text/pipeline_tokenizer.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

namespace quire {

namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // "▁"

std::string key(std::string_view name) {
  return fmt::format("tokenizer.ggml.{}", name);
}

class GgufTokenizerLoader {
 public:
  GgufTokenizerLoader(const Metadata& metadata, const std::string& where)
      : metadata_(metadata), where_(where) {}

  Result<std::unique_ptr<Tokenizer>> load() {
    const std::string* model = metadata_.get_string(key("model"));
    if (model == nullptr) return error("has no tokenizer.ggml.model; this file carries no tokenizer");
    QUIRE_RETURN_IF_ERROR(read_vocabulary());
    QUIRE_RETURN_IF_ERROR(read_special_ids());
    if (*model == "gpt2") {
      QUIRE_RETURN_IF_ERROR(load_byte_level());
    } else if (*model == "llama") {
      QUIRE_RETURN_IF_ERROR(load_sentencepiece());
    } else if (*model == "bert") {
      QUIRE_RETURN_IF_ERROR(load_wordpiece());
    } else if (*model == "t5") {
      QUIRE_RETURN_IF_ERROR(load_unigram());
    } else {
      return make_error(
          ErrorCode::kUnsupported,
          fmt::format("{}: tokenizer.ggml.model is \"{}\"; supported are gpt2, llama, bert and t5", where_,
                      *model));
    }
    QUIRE_RETURN_IF_ERROR(set_ends());
    collect_end_ids();
    parts_.vocabulary = vocabulary_;
    std::unique_ptr<Tokenizer> tokenizer = std::make_unique<PipelineTokenizer>(std::move(parts_));
    return tokenizer;
  }

 private:
  Error error(std::string_view message) const { return invalid(fmt::format("{}: {}", where_, message)); }

  Status read_vocabulary() {
    const auto* tokens = metadata_.get_strings(key("tokens"));
    if (tokens == nullptr || tokens->empty()) return error("tokenizer.ggml.tokens is missing or empty");
    // More than any model has, and few enough that ids fit everywhere.
    constexpr std::size_t kMaxTokens = 1u << 24;
    if (tokens->size() > kMaxTokens) {
      return error(fmt::format("tokenizer.ggml.tokens has {} entries; at most {} are taken", tokens->size(),
                               kMaxTokens));
    }
    vocabulary_->pieces = *tokens;
    vocabulary_->kinds.assign(tokens->size(), TokenKind::kNormal);
    if (const auto* types = metadata_.get_ints(key("token_type"))) {
      if (types->size() != tokens->size()) {
        return error(fmt::format("tokenizer.ggml.token_type has {} entries for {} tokens", types->size(),
                                 tokens->size()));
      }
      for (std::size_t id = 0; id < types->size(); ++id) {
        const std::int64_t type = (*types)[id];
        if (type < 0 || type > 6) {
          return error(fmt::format("tokenizer.ggml.token_type[{}] is {}; known are 0 to 6", id, type));
        }
        if (type != 0) vocabulary_->kinds[id] = static_cast<TokenKind>(type);
      }
    }
    if (const auto* scores = metadata_.get_floats(key("scores"))) {
      if (scores->size() != tokens->size()) {
        return error(fmt::format("tokenizer.ggml.scores has {} entries for {} tokens", scores->size(),
                                 tokens->size()));
      }
      vocabulary_->scores.resize(scores->size());
      for (std::size_t id = 0; id < scores->size(); ++id) {
        if ((*scores)[id] != (*scores)[id]) {
          return error(fmt::format("tokenizer.ggml.scores[{}] is not a number", id));
        }
        vocabulary_->scores[id] = static_cast<float>((*scores)[id]);
      }
    }
    vocabulary_->build_index();
    return {};
  }

  Result<std::optional<TokenId>> id_of(std::string_view name) const {
    const auto value = metadata_.get_int(key(name));
    if (!value) return std::optional<TokenId>();
    // Converters write -1 or the largest u32 for "none".
    if (*value == -1 || *value == 0xffffffffLL) return std::optional<TokenId>();
    if (*value < 0 || *value >= vocabulary_->size()) {
      return error(fmt::format("tokenizer.ggml.{} is {}, outside the vocabulary of {}", name, *value,
                               vocabulary_->size()));
    }
    return std::optional<TokenId>(static_cast<TokenId>(*value));
  }

  Status read_special_ids() {
    QUIRE_TRY(parts_.bos, id_of("bos_token_id"));
    QUIRE_TRY(parts_.eos, id_of("eos_token_id"));
    QUIRE_TRY(parts_.pad, id_of("padding_token_id"));
    QUIRE_TRY(eot_, id_of("eot_token_id"));
    QUIRE_TRY(eom_, id_of("eom_token_id"));
    QUIRE_TRY(unk_, id_of("unknown_token_id"));
    QUIRE_TRY(sep_, id_of("seperator_token_id"));  // the key is spelled so
    QUIRE_TRY(cls_, id_of("cls_token_id"));
    // What ends or begins a turn is a control token whatever type the converter gave it: a user must not be
    // able to spell it (policy in added_tokens.h).
    for (TokenId id = 0; id < vocabulary_->size(); ++id) {
      TokenKind& kind = vocabulary_->kinds[static_cast<std::size_t>(id)];
      const bool named = (eot_ && *eot_ == id) || (eom_ && *eom_ == id);
      if (kind != TokenKind::kUserDefined && !(named && kind == TokenKind::kNormal)) continue;
      if (!named && !is_turn_marker(vocabulary_->piece(id))) continue;
      log_info("{}: token {} ({}) marks turns and is treated as a control token", where_, id,
               vocabulary_->piece(id));
      kind = TokenKind::kControl;
    }
    return {};
  }

  // "[PAD151646]" as token 151646: the filler with which converters bring a vocabulary to the size of the
  // embedding. No text becomes it.
  bool is_filler(TokenId id) const { return vocabulary_->piece(id) == fmt::format("[PAD{}]", id); }

  void collect_added_tokens() {
    for (TokenId id = 0; id < vocabulary_->size(); ++id) {
      const TokenKind kind = vocabulary_->kind(id);
      const bool control = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
      if ((!control && kind != TokenKind::kUserDefined) || vocabulary_->piece(id).empty()) continue;
      if (is_filler(id)) {
        vocabulary_->kinds[static_cast<std::size_t>(id)] = TokenKind::kUnused;
        continue;
      }
      AddedToken token;
      token.id = id;
      token.content = std::string(vocabulary_->piece(id));
      token.special = control;
      parts_.added_tokens.push_back(std::move(token));
    }
  }

  AddedToken* added(std::string_view content) {
    for (AddedToken& token : parts_.added_tokens) {
      if (token.content == content) return &token;
    }
    return nullptr;
  }

  Status load_byte_level() {
    const std::string* name = metadata_.get_string(key("pre"));
    std::string pre_name = name == nullptr ? "" : *name;
    if (pre_name.empty()) {
      // As GGUF's reference implementation does; files from before the key existed.
      log_warning(
          "{}: tokenizer.ggml.pre is missing, so the splits of \"default\" are used; if they are not this "
          "model's, its answers suffer",
          where_);
      pre_name = "default";
    }
    const GgufPreTokenizer* pre = find_gguf_pre_tokenizer(pre_name);
    if (pre == nullptr) {
      return make_error(
          ErrorCode::kUnsupported,
          fmt::format("{}: tokenizer.ggml.pre is \"{}\", which is not known; a wrong split would "
                      "spoil the answers silently. Known are: {}",
                      where_, pre_name, fmt::join(gguf_pre_tokenizer_names(), ", ")));
    }
    std::vector<PreTokenStepPtr> steps;
    for (std::string_view pattern : pre->patterns) {
      if (const auto kind = known_split(pattern)) {
        steps.push_back(make_known_split(*kind));
      } else if (pattern == kTrailingSpaceSplit) {
        steps.push_back(make_trailing_space_split());
      } else {
        steps.push_back(make_regex_split(Regex::must_compile(pattern), SplitBehavior::kIsolated, false));
      }
    }
    parts_.pre_tokenizer = make_sequence_step(std::move(steps));
    if (pre->nfc) parts_.normalizer = make_unicode_normalizer(UnicodeForm::kNfc);
    parts_.decoder = TokenDecoder({{.kind = DecoderStep::Kind::kByteLevel}});
    parts_.description = fmt::format("pre-tokenizer {}{}", pre_name, pre->nfc ? ", NFC" : "");
    default_add_bos_ = pre->add_bos;
    default_add_sep_ = pre->add_sep;
    collect_added_tokens();
    if (pre_name == "jina-v2-de" || pre_name == "jina-v2-es" || pre_name == "jina-v2-code") {
      if (AddedToken* mask = added("<mask>")) mask->lstrip = true;
    }
    const auto* merges = metadata_.get_strings(key("merges"));
    if (merges == nullptr) return error("tokenizer.ggml.merges is missing");
    std::vector<BpeModel::Merge> pairs;
    pairs.reserve(merges->size());
    for (std::size_t i = 0; i < merges->size(); ++i) {
      const std::string_view merge = (*merges)[i];
      // The separator is the first space after the first character: a piece may begin with one.
      const std::size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == merge.size()) {
        return error(fmt::format("tokenizer.ggml.merges[{}] is \"{}\", not two pieces with a space between",
                                 i, merge));
      }
      pairs.emplace_back(merge.substr(0, space), merge.substr(space + 1));
    }
    BpeOptions options;
    options.byte_level = true;
    options.ignore_merges = pre->ignore_merges;
    options.strict_merges = false;
    QUIRE_TRY(parts_.model, BpeModel::from_merges(vocabulary_, pairs, options, where_));
    return {};
  }

  Status load_sentencepiece() {
    if (vocabulary_->scores.empty()) return error("tokenizer.ggml.scores is missing");
    default_add_bos_ = true;
    collect_added_tokens();
    const bool prefix = metadata_.get_bool(key("add_space_prefix")).value_or(true);
    std::vector<NormalizerPtr> normalizers;
    if (metadata_.get_bool(key("remove_extra_whitespaces")).value_or(false)) {
      normalizers.push_back(make_collapse_spaces_normalizer());
    }
    if (prefix) normalizers.push_back(make_prepend_normalizer(std::string(kSpaceMark)));
    normalizers.push_back(make_replace_normalizer(" ", std::string(kSpaceMark)));
    parts_.normalizer = make_sequence_normalizer(std::move(normalizers));
    set_space_mark_decoder(prefix);
    // Phi-3's tokenizer.json sets rstrip on its added tokens, for which GGUF has no key.
    const std::string* architecture = metadata_.get_string("general.architecture");
    const std::string* general_name = metadata_.get_string("general.name");
    std::string lowered = general_name == nullptr ? "" : *general_name;
    for (char& c : lowered) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    if ((architecture != nullptr && *architecture == "phi3") || lowered.find("phi-3") != std::string::npos ||
        lowered.find("phi3") != std::string::npos) {
      for (AddedToken& token : parts_.added_tokens) {
        token.rstrip = token.content != "<unk>" && token.content != "<s>" && token.content != "<|endoftext|>";
      }
    }
    BpeOptions options;
    options.byte_fallback = true;
    options.unk = unknown_token();
    parts_.model = BpeModel::from_scores(vocabulary_, options);
    parts_.description = "scores and byte fallback (SentencePiece)";
    return {};
  }

  std::optional<TokenId> unknown_token() const {
    if (unk_) return unk_;
    for (TokenId id = 0; id < vocabulary_->size(); ++id) {
      if (vocabulary_->kind(id) == TokenKind::kUnknown) return id;
    }
    return std::nullopt;
  }

  void set_space_mark_decoder(bool strip) {
    DecoderStep mark{.kind = DecoderStep::Kind::kMetaspace};
    mark.from = kSpaceMark;
    mark.strip = strip;
    mark.count = 1;
    parts_.decoder = TokenDecoder({{.kind = DecoderStep::Kind::kByteFallback}, mark});
  }

  Status load_unigram() {
    if (vocabulary_->scores.empty()) return error("tokenizer.ggml.scores is missing");
    default_add_eos_ = true;
    collect_added_tokens();
    std::vector<NormalizerPtr> normalizers;
    if (const auto* map = metadata_.get_ints(key("precompiled_charsmap")); map != nullptr && !map->empty()) {
      std::string bytes(map->size(), '\0');
      std::transform(map->begin(), map->end(), bytes.begin(), [](auto v) { return static_cast<char>(v); });
      QUIRE_TRY(auto normalizer, make_charsmap_normalizer(bytes, where_));
      normalizers.push_back(std::move(normalizer));
    }
    if (metadata_.get_bool(key("remove_extra_whitespaces")).value_or(false)) {
      normalizers.push_back(make_collapse_spaces_normalizer());
    }
    const bool prefix = metadata_.get_bool(key("add_space_prefix")).value_or(false);
    if (prefix) normalizers.push_back(make_prepend_normalizer(std::string(kSpaceMark)));
    normalizers.push_back(make_replace_normalizer(" ", std::string(kSpaceMark)));
    parts_.normalizer = make_sequence_normalizer(std::move(normalizers));
    set_space_mark_decoder(prefix);
    UnigramOptions options;
    options.unk = unknown_token();
    options.byte_fallback = std::any_of(vocabulary_->kinds.begin(), vocabulary_->kinds.end(),
                                        [](TokenKind kind) { return kind == TokenKind::kByte; });
    parts_.model = std::make_unique<UnigramModel>(vocabulary_, options);
    parts_.description = options.byte_fallback ? "byte fallback" : "";
    return {};
  }

  Status load_wordpiece() {
    default_add_bos_ = true;
    default_add_sep_ = true;
    if (!parts_.bos) parts_.bos = cls_;
    if (!sep_) sep_ = vocabulary_->find("[SEP]");
    if (!parts_.bos) parts_.bos = vocabulary_->find("[CLS]");
    collect_added_tokens();
    BertNormalizerOptions normalizer;
    normalizer.lowercase = metadata_.get_bool(key("normalizer.lowercase")).value_or(true);
    parts_.normalizer = make_bert_normalizer(normalizer);
    parts_.pre_tokenizer = make_bert_split();
    // Converters turn "##x" into "x" and "x" into "▁x"; old files keep BERT's own form.
    const bool marked = std::any_of(
        vocabulary_->pieces.begin(), vocabulary_->pieces.end(),
        [](std::string_view piece) { return piece.compare(0, kSpaceMark.size(), kSpaceMark) == 0; });
    WordPieceOptions options;
    options.unk = unknown_token();
    if (!options.unk) options.unk = vocabulary_->find("[UNK]");
    DecoderStep step;
    if (marked) {
      options.word_start = kSpaceMark;
      options.continuing_prefix = "";
      step.kind = DecoderStep::Kind::kMetaspace;
      step.from = kSpaceMark;
      step.strip = true;
      step.count = 1;
    } else {
      step.kind = DecoderStep::Kind::kWordPiece;
      step.from = "##";
    }
    parts_.decoder = TokenDecoder({step, {.kind = DecoderStep::Kind::kCleanUp}});
    parts_.model = std::make_unique<WordPieceModel>(vocabulary_, options);
    parts_.description = normalizer.lowercase ? "lower case" : "cased";
    return {};
  }

  // What add_special_tokens adds, from the add_* keys or the habits of the kind.
  Status set_ends() {
    const auto wants = [&](std::string_view name, bool fallback) {
      return metadata_.get_bool(key(name)).value_or(fallback);
    };
    if (wants("add_bos_token", default_add_bos_ && parts_.bos)) {
      if (!parts_.bos) return error("tokenizer.ggml.add_bos_token is true, but there is no bos_token_id");
      parts_.prefix.push_back(*parts_.bos);
    }
    if (wants("add_sep_token", default_add_sep_ && sep_)) {
      if (!sep_) return error("tokenizer.ggml.add_sep_token is true, but there is no seperator_token_id");
      parts_.suffix.push_back(*sep_);
    }
    if (wants("add_eos_token", default_add_eos_ && parts_.eos)) {
      if (!parts_.eos) return error("tokenizer.ggml.add_eos_token is true, but there is no eos_token_id");
      parts_.suffix.push_back(*parts_.eos);
    }
    return {};
  }

  void collect_end_ids() {
    if (eot_) parts_.end_ids.push_back(*eot_);
    if (eom_) parts_.end_ids.push_back(*eom_);
    // Many files name only eos; the end of a turn is then known by its spelling.
    for (const AddedToken& token : parts_.added_tokens) {
      if (token.special && is_end_of_turn(token.content)) parts_.end_ids.push_back(token.id);
    }
  }

  const Metadata& metadata_;
  const std::string& where_;
  std::shared_ptr<Vocabulary> vocabulary_ = std::make_shared<Vocabulary>();
  PipelineParts parts_;
  std::optional<TokenId> eot_, eom_, unk_, sep_, cls_;
  bool default_add_bos_ = false, default_add_sep_ = false, default_add_eos_ = false;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer_gguf(const Metadata& metadata, const std::string& where) {
  return GgufTokenizerLoader(metadata, where).load();
}

}  // namespace quire
