// Purpose: the component objects of tokenizer.json, from their JSON to the classes that do the work.
// In: JSON and the path to it, for errors. Out: components; what is unknown is an error that names it.
// Thread: pure functions. Out of scope: model and vocabulary (tokenizer_json.cc).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"
#include "text/tokenizer.h"

namespace quire {

// One field of an object, with its type checked. A missing or null field gives the fallback.
Result<bool> json_bool(const nlohmann::json& object, const char* name, bool fallback,
                       const std::string& path);
Result<std::string> json_string(const nlohmann::json& object, const char* name, const std::string& fallback,
                                const std::string& path);
Result<std::int64_t> json_int(const nlohmann::json& object, const char* name, std::int64_t fallback,
                              const std::string& path);

// null JSON gives null.
Result<NormalizerPtr> normalizer_from_json(const nlohmann::json& config, const std::string& path);

struct PreTokenizerConfig {
  std::vector<PreTokenStepPtr> steps;
  // The last step turns the words into bytes: a BPE model takes the bytes themselves.
  bool ends_in_bytes = false;
  std::string summary;  // for the start-up report
};
Result<PreTokenizerConfig> pre_tokenizer_from_json(const nlohmann::json& config, const std::string& path);

Result<TokenDecoder> decoder_from_json(const nlohmann::json& config, const std::string& path);

struct EndTokens {
  std::vector<TokenId> prefix, suffix;
};
Result<EndTokens> post_processor_from_json(const nlohmann::json& config, const std::string& path);

}  // namespace quire
