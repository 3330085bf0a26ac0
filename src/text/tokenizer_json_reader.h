// Purpose: parse tokenizer.json without building a DOM of its large tables, within limits.
// In: the file's text. Out: vocabulary and merges as vectors, the rest as JSON. Thread: pure functions.
// Out of scope: what the fields mean (tokenizer_json.cc).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "base/string_list.h"

namespace quire {

struct TokenizerJson {
  nlohmann::json rest;  // everything but model.vocab and model.merges
  StringList pieces;    // of model.vocab
  bool vocab_is_list = false;
  std::vector<std::int64_t> ids;  // by piece, if model.vocab is an object
  std::vector<double> scores;     // by piece, if it is a list
  StringList merges;              // "a b" or ["a", "b"]: left and right in turn
  bool has_merges = false;
};

Result<TokenizerJson> read_tokenizer_json(std::string_view text, const std::string& where);
// Any other JSON file, with the same limits on depth.
Result<nlohmann::json> read_json(std::string_view text, const std::string& where);

}  // namespace quire
