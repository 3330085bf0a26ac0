// Purpose: parse tokenizer.json without building a DOM of its large tables, within limits.
// In: the file's text. Out: vocabulary and merges as vectors, the rest as JSON. Thread: pure functions.
// Out of scope: what the fields mean (tokenizer_json.cc).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace quire {

struct TokenizerJson {
  nlohmann::json rest;  // everything but model.vocab and model.merges
  bool vocab_is_list = false;
  std::vector<std::pair<std::string, std::int64_t>> vocab;   // model.vocab as an object: piece, id
  std::vector<std::pair<std::string, double>> scored_vocab;  // model.vocab as a list: piece, score
  std::vector<std::pair<std::string, std::string>> merges;   // "a b" or ["a", "b"]
  bool has_merges = false;
};

Result<TokenizerJson> read_tokenizer_json(std::string_view text, const std::string& where);
// Any other JSON file, with the same limits on depth.
Result<nlohmann::json> read_json(std::string_view text, const std::string& where);

}  // namespace quire
