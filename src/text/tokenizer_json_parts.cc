#include "text/tokenizer_json_parts.h"

#include <algorithm>
#include <climits>

#include <fmt/core.h>

#include "text/utf8.h"

namespace quire {

namespace {

using nlohmann::json;

Error wrong_type(const std::string& path, const char* name, const char* wanted) {
  return invalid(fmt::format("{}.{} is not {}", path, name, wanted));
}

Error unsupported(const std::string& path, const std::string& type) {
  return make_error(ErrorCode::kUnsupported, fmt::format("{}: type \"{}\" is not supported", path, type));
}

// nullptr if missing or null.
const json* field(const json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Result<std::string> type_of(const json& config, const std::string& path) {
  if (!config.is_object()) return invalid(fmt::format("{} is not an object", path));
  return json_string(config, "type", "", path);
}

Result<const json*> array_field(const json& config, const char* name, const std::string& path) {
  const json* value = field(config, name);
  if (value == nullptr || !value->is_array()) return wrong_type(path, name, "an array");
  return value;
}

}  // namespace

Result<bool> json_bool(const json& object, const char* name, bool fallback, const std::string& path) {
  const json* value = field(object, name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return wrong_type(path, name, "true or false");
  return value->get<bool>();
}

Result<std::string> json_string(const json& object, const char* name, const std::string& fallback,
                                const std::string& path) {
  const json* value = field(object, name);
  if (value == nullptr) return fallback;
  if (!value->is_string()) return wrong_type(path, name, "a string");
  return value->get<std::string>();
}

Result<std::int64_t> json_int(const json& object, const char* name, std::int64_t fallback,
                              const std::string& path) {
  const json* value = field(object, name);
  if (value == nullptr) return fallback;
  if (!value->is_number_integer()) return wrong_type(path, name, "an integer");
  if (value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX) {
    return wrong_type(path, name, "an integer of 64 bits");
  }
  return value->get<std::int64_t>();
}

namespace {

// {"String": "..."} or {"Regex": "..."}; old files have the string itself.
struct Pattern {
  std::string text;
  std::shared_ptr<const Regex> regex;  // null: the text is literal (TOK-16)
};

Result<Pattern> pattern_from_json(const json& config, const std::string& path, bool compile) {
  const json* value = field(config, "pattern");
  if (value != nullptr && value->is_string()) return Pattern{value->get<std::string>(), nullptr};
  if (value == nullptr || !value->is_object() || value->size() != 1 || !value->begin()->is_string()) {
    return invalid(fmt::format("{}.pattern is not {{\"String\": ...}} or {{\"Regex\": ...}}", path));
  }
  Pattern pattern{value->begin()->get<std::string>(), nullptr};
  if (value->begin().key() == "String") return pattern;
  if (value->begin().key() != "Regex") {
    return unsupported(path + ".pattern", value->begin().key());
  }
  if (compile) {
    QUIRE_TRY(pattern.regex, Regex::compile(pattern.text, path + ".pattern"));
  }
  return pattern;
}

bool is_regex(const json& config) {
  const json* value = field(config, "pattern");
  return value != nullptr && value->is_object() && value->contains("Regex");
}

Result<std::string> decode_base64(const std::string& text, const std::string& path) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    int value;
    if (c >= 'A' && c <= 'Z') {
      value = c - 'A';
    } else if (c >= 'a' && c <= 'z') {
      value = c - 'a' + 26;
    } else if (c >= '0' && c <= '9') {
      value = c - '0' + 52;
    } else if (c == '+') {
      value = 62;
    } else if (c == '/') {
      value = 63;
    } else if (c == '=') {
      break;
    } else {
      return invalid(fmt::format("{} is not base64", path));
    }
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count & 0xff));
    }
  }
  return out;
}

Result<NormalizerPtr> bert_normalizer(const json& config, const std::string& path) {
  BertNormalizerOptions options;
  QUIRE_TRY(options.clean_text, json_bool(config, "clean_text", true, path));
  QUIRE_TRY(options.handle_chinese_chars, json_bool(config, "handle_chinese_chars", true, path));
  QUIRE_TRY(options.lowercase, json_bool(config, "lowercase", true, path));
  if (field(config, "strip_accents") != nullptr) {
    QUIRE_TRY(options.strip_accents, json_bool(config, "strip_accents", false, path));
  }
  return make_bert_normalizer(options);
}

}  // namespace

Result<NormalizerPtr> normalizer_from_json(const json& config, const std::string& path) {
  if (config.is_null()) return NormalizerPtr();
  QUIRE_TRY(const std::string type, type_of(config, path));
  if (type == "Sequence") {
    QUIRE_TRY(const json* list, array_field(config, "normalizers", path));
    std::vector<NormalizerPtr> parts;
    for (std::size_t i = 0; i < list->size(); ++i) {
      QUIRE_TRY(auto part, normalizer_from_json((*list)[i], fmt::format("{}.normalizers[{}]", path, i)));
      if (part != nullptr) parts.push_back(std::move(part));
    }
    return parts.empty() ? NormalizerPtr() : make_sequence_normalizer(std::move(parts));
  }
  if (type == "NFC") return make_unicode_normalizer(UnicodeForm::kNfc);
  if (type == "NFD") return make_unicode_normalizer(UnicodeForm::kNfd);
  if (type == "NFKC") return make_unicode_normalizer(UnicodeForm::kNfkc);
  if (type == "NFKD") return make_unicode_normalizer(UnicodeForm::kNfkd);
  if (type == "Lowercase") return make_lowercase_normalizer();
  if (type == "StripAccents") return make_strip_accents_normalizer();
  if (type == "Nmt") return make_nmt_normalizer();
  if (type == "ByteLevel") return make_byte_level_normalizer();
  if (type == "BertNormalizer") return bert_normalizer(config, path);
  if (type == "Strip") {
    QUIRE_TRY(const bool left, json_bool(config, "strip_left", true, path));
    QUIRE_TRY(const bool right, json_bool(config, "strip_right", true, path));
    return make_strip_normalizer(left, right);
  }
  if (type == "Prepend") {
    QUIRE_TRY(std::string prefix, json_string(config, "prepend", "", path));
    return make_prepend_normalizer(std::move(prefix));
  }
  if (type == "Replace") {
    QUIRE_TRY(Pattern pattern, pattern_from_json(config, path, true));
    QUIRE_TRY(std::string content, json_string(config, "content", "", path));
    if (pattern.regex != nullptr) {
      return make_regex_replace_normalizer(std::move(pattern.regex), std::move(content));
    }
    return make_replace_normalizer(std::move(pattern.text), std::move(content));
  }
  if (type == "Precompiled") {
    QUIRE_TRY(const std::string encoded, json_string(config, "precompiled_charsmap", "", path));
    QUIRE_TRY(const std::string map, decode_base64(encoded, path + ".precompiled_charsmap"));
    return make_charsmap_normalizer(map, path);
  }
  return unsupported(path, type);
}

namespace {

Result<SplitBehavior> behavior_from_json(const json& config, const char* fallback, const std::string& path) {
  QUIRE_TRY(std::string name, json_string(config, "behavior", fallback, path));
  // Both spellings occur: "MergedWithPrevious" in files, "merged_with_previous" in code.
  std::string plain;
  for (char c : name) {
    if (c != '_') plain.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  }
  if (plain == "removed") return SplitBehavior::kRemoved;
  if (plain == "isolated") return SplitBehavior::kIsolated;
  if (plain == "mergedwithprevious") return SplitBehavior::kMergedWithPrevious;
  if (plain == "mergedwithnext") return SplitBehavior::kMergedWithNext;
  if (plain == "contiguous") return SplitBehavior::kContiguous;
  return make_error(ErrorCode::kUnsupported,
                    fmt::format("{}.behavior is \"{}\", which is not known", path, name));
}

Result<PreTokenStepPtr> split_from_json(const json& config, const std::string& path, std::string& summary) {
  QUIRE_TRY(const SplitBehavior behavior, behavior_from_json(config, "", path));
  QUIRE_TRY(const bool invert, json_bool(config, "invert", false, path));
  if (is_regex(config)) {
    QUIRE_TRY(const Pattern plain, pattern_from_json(config, path, false));
    const auto kind = known_split(plain.text);
    // These patterns cover any text, so keeping the matches and dropping the rest is isolating them.
    const bool isolates =
        (behavior == SplitBehavior::kIsolated) || (behavior == SplitBehavior::kRemoved && invert);
    if (kind && isolates) {
      summary = "split by a known pattern";
      return make_known_split(*kind);
    }
    if (plain.text == R"(\s+$)" && behavior == SplitBehavior::kIsolated && !invert) {
      return make_trailing_space_split();
    }
  }
  QUIRE_TRY(Pattern pattern, pattern_from_json(config, path, true));
  if (pattern.regex != nullptr) return make_regex_split(std::move(pattern.regex), behavior, invert);
  return make_literal_split(std::move(pattern.text), behavior, invert);
}

Result<PreTokenStepPtr> metaspace_from_json(const json& config, const std::string& path) {
  QUIRE_TRY(std::string replacement, json_string(config, "replacement", "\xe2\x96\x81", path));
  if (replacement.empty()) return invalid(fmt::format("{}.replacement is empty", path));
  QUIRE_TRY(const bool split, json_bool(config, "split", true, path));
  QUIRE_TRY(const bool legacy_prefix, json_bool(config, "add_prefix_space", true, path));
  QUIRE_TRY(const std::string scheme,
            json_string(config, "prepend_scheme", legacy_prefix ? "always" : "never", path));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("{}.prepend_scheme is \"{}\"; known are always, first and never", path, scheme));
  }
  const PrependScheme value = scheme == "always"  ? PrependScheme::kAlways
                              : scheme == "first" ? PrependScheme::kFirst
                                                  : PrependScheme::kNever;
  return make_metaspace_step(std::move(replacement), value, split);
}

Status add_pre_tokenizer(const json& config, const std::string& path, PreTokenizerConfig& out) {
  QUIRE_TRY(const std::string type, type_of(config, path));
  if (type == "Sequence") {
    QUIRE_TRY(const json* list, array_field(config, "pretokenizers", path));
    for (std::size_t i = 0; i < list->size(); ++i) {
      QUIRE_RETURN_IF_ERROR(add_pre_tokenizer((*list)[i], fmt::format("{}.pretokenizers[{}]", path, i), out));
    }
    return {};
  }
  // What follows ByteLevel sees the characters that stand for bytes.
  if (out.ends_in_bytes) {
    out.steps.push_back(make_byte_chars_step());
    out.ends_in_bytes = false;
  }
  std::string summary = type;
  if (type == "ByteLevel") {
    QUIRE_TRY(const bool prefix, json_bool(config, "add_prefix_space", true, path));
    QUIRE_TRY(const bool use_regex, json_bool(config, "use_regex", true, path));
    if (prefix) out.steps.push_back(make_prefix_space_step());
    if (use_regex) out.steps.push_back(make_known_split(SplitKind::kGpt2));
    out.ends_in_bytes = true;
  } else if (type == "Split") {
    QUIRE_TRY(auto step, split_from_json(config, path, summary));
    out.steps.push_back(std::move(step));
  } else if (type == "Metaspace") {
    QUIRE_TRY(auto step, metaspace_from_json(config, path));
    out.steps.push_back(std::move(step));
  } else if (type == "Digits") {
    QUIRE_TRY(const bool individual, json_bool(config, "individual_digits", false, path));
    out.steps.push_back(make_digits_split(individual));
  } else if (type == "Punctuation") {
    QUIRE_TRY(const SplitBehavior behavior, behavior_from_json(config, "Isolated", path));
    out.steps.push_back(make_punctuation_split(behavior));
  } else if (type == "Whitespace") {
    out.steps.push_back(make_word_split());
  } else if (type == "WhitespaceSplit") {
    out.steps.push_back(make_whitespace_split());
  } else if (type == "BertPreTokenizer") {
    out.steps.push_back(make_bert_split());
  } else if (type == "CharDelimiterSplit") {
    QUIRE_TRY(std::string delimiter, json_string(config, "delimiter", "", path));
    out.steps.push_back(make_literal_split(std::move(delimiter), SplitBehavior::kRemoved, false));
  } else {
    return unsupported(path, type);
  }
  if (!out.summary.empty()) out.summary += " + ";
  out.summary += summary;
  return {};
}

Status add_decoder(const json& config, const std::string& path, bool& fused, std::vector<DecoderStep>& out) {
  QUIRE_TRY(const std::string type, type_of(config, path));
  DecoderStep step;
  if (type == "Sequence") {
    QUIRE_TRY(const json* list, array_field(config, "decoders", path));
    for (std::size_t i = 0; i < list->size(); ++i) {
      QUIRE_RETURN_IF_ERROR(add_decoder((*list)[i], fmt::format("{}.decoders[{}]", path, i), fused, out));
    }
    return {};
  }
  if (type == "Fuse") {
    fused = true;
    return {};
  }
  if (type == "ByteLevel") {
    step.kind = DecoderStep::Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = DecoderStep::Kind::kByteFallback;
  } else if (type == "Metaspace") {
    step.kind = DecoderStep::Kind::kMetaspace;
    QUIRE_TRY(step.from, json_string(config, "replacement", "\xe2\x96\x81", path));
    QUIRE_TRY(const bool legacy_prefix, json_bool(config, "add_prefix_space", true, path));
    QUIRE_TRY(const std::string scheme,
              json_string(config, "prepend_scheme", legacy_prefix ? "always" : "never", path));
    step.strip = scheme != "never";
    step.count = INT_MAX;  // tokenizers drops every mark of the first token
  } else if (type == "Replace") {
    step.kind = DecoderStep::Kind::kReplace;
    QUIRE_TRY(Pattern pattern, pattern_from_json(config, path, true));
    step.from = std::move(pattern.text);
    step.pattern = std::move(pattern.regex);
    QUIRE_TRY(step.to, json_string(config, "content", "", path));
  } else if (type == "Strip") {
    step.kind = DecoderStep::Kind::kStrip;
    QUIRE_TRY(step.from, json_string(config, "content", " ", path));
    QUIRE_TRY(const std::int64_t start, json_int(config, "start", 0, path));
    QUIRE_TRY(const std::int64_t stop, json_int(config, "stop", 0, path));
    if (stop != 0) {
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("{}.stop is {}: stripping the end of a text that is streamed is not "
                                    "supported",
                                    path, stop));
    }
    step.count = static_cast<int>(std::clamp<std::int64_t>(start, 0, 1 << 20));
    step.strip = !fused;  // without Fuse before it, each token is stripped
  } else if (type == "WordPiece") {
    step.kind = DecoderStep::Kind::kWordPiece;
    QUIRE_TRY(step.from, json_string(config, "prefix", "##", path));
    QUIRE_TRY(const bool clean, json_bool(config, "cleanup", true, path));
    out.push_back(step);
    if (!clean) return {};
    step = DecoderStep();
    step.kind = DecoderStep::Kind::kCleanUp;
  } else if (type == "BPEDecoder") {
    step.kind = DecoderStep::Kind::kBpeSuffix;
    QUIRE_TRY(step.from, json_string(config, "suffix", "</w>", path));
  } else {
    return unsupported(path, type);
  }
  out.push_back(std::move(step));
  return {};
}

}  // namespace

Result<PreTokenizerConfig> pre_tokenizer_from_json(const json& config, const std::string& path) {
  PreTokenizerConfig out;
  if (config.is_null()) return out;
  QUIRE_RETURN_IF_ERROR(add_pre_tokenizer(config, path, out));
  return out;
}

Result<TokenDecoder> decoder_from_json(const json& config, const std::string& path) {
  std::vector<DecoderStep> steps;
  if (config.is_null()) {
    // Without a decoder, tokens are words with a space between.
    DecoderStep step;
    step.kind = DecoderStep::Kind::kWordPiece;
    steps.push_back(std::move(step));
    return TokenDecoder(std::move(steps));
  }
  bool fused = false;
  QUIRE_RETURN_IF_ERROR(add_decoder(config, path, fused, steps));
  return TokenDecoder(std::move(steps));
}

namespace {

Result<TokenId> token_id(const json& value, const std::string& path) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > INT32_MAX) {
    return invalid(fmt::format("{} is not a token id", path));
  }
  return static_cast<TokenId>(value.get<std::uint64_t>());
}

// ["[SEP]", 102]
Result<TokenId> named_token(const json& config, const char* name, const std::string& path) {
  const json* value = field(config, name);
  if (value == nullptr || !value->is_array() || value->size() != 2) {
    return wrong_type(path, name, "a token and its id");
  }
  return token_id((*value)[1], fmt::format("{}.{}[1]", path, name));
}

Result<EndTokens> template_ends(const json& config, const std::string& path) {
  EndTokens out;
  QUIRE_TRY(const json* items, array_field(config, "single", path));
  const json* tokens = field(config, "special_tokens");
  bool after_text = false;
  for (std::size_t i = 0; i < items->size(); ++i) {
    const json& item = (*items)[i];
    const std::string here = fmt::format("{}.single[{}]", path, i);
    if (!item.is_object() || item.size() != 1 || !item.begin()->is_object()) {
      return invalid(fmt::format("{} is neither a Sequence nor a SpecialToken", here));
    }
    if (item.begin().key() == "Sequence") {
      if (after_text) return invalid(fmt::format("{} takes the text a second time", here));
      after_text = true;
      continue;
    }
    if (item.begin().key() != "SpecialToken") return unsupported(here, item.begin().key());
    QUIRE_TRY(const std::string name, json_string(*item.begin(), "id", "", here));
    const json* token = tokens != nullptr && tokens->is_object() ? field(*tokens, name.c_str()) : nullptr;
    const json* ids = token != nullptr && token->is_object() ? field(*token, "ids") : nullptr;
    if (ids == nullptr || !ids->is_array()) {
      return invalid(fmt::format("{} names \"{}\", which special_tokens does not define", here, name));
    }
    for (const json& value : *ids) {
      QUIRE_TRY(const TokenId id, token_id(value, path + ".special_tokens"));
      (after_text ? out.suffix : out.prefix).push_back(id);
    }
  }
  return out;
}

}  // namespace

Result<EndTokens> post_processor_from_json(const json& config, const std::string& path) {
  EndTokens out;
  if (config.is_null()) return out;
  QUIRE_TRY(const std::string type, type_of(config, path));
  if (type == "ByteLevel") return out;  // offsets only
  if (type == "TemplateProcessing") return template_ends(config, path);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    QUIRE_TRY(const TokenId cls, named_token(config, "cls", path));
    QUIRE_TRY(const TokenId sep, named_token(config, "sep", path));
    out.prefix.push_back(cls);
    out.suffix.push_back(sep);
    return out;
  }
  if (type == "Sequence") {
    QUIRE_TRY(const json* list, array_field(config, "processors", path));
    for (std::size_t i = 0; i < list->size(); ++i) {
      QUIRE_TRY(const EndTokens part,
                post_processor_from_json((*list)[i], fmt::format("{}.processors[{}]", path, i)));
      out.prefix.insert(out.prefix.begin(), part.prefix.begin(), part.prefix.end());
      out.suffix.insert(out.suffix.end(), part.suffix.begin(), part.suffix.end());
    }
    return out;
  }
  return unsupported(path, type);
}

}  // namespace quire
