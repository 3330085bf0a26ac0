// Purpose: what the names of tokenizer.ggml.pre stand for.
// In: a name. Out: the splits, and the habits that GGUF files leave to the reader. Thread: constants.
#pragma once

#include <string_view>
#include <vector>

namespace quire {

struct GgufPreTokenizer {
  std::vector<std::string_view> names;
  // Applied one after the other, matches isolated. kTrailingSpaceSplit stands for "\s+$".
  std::vector<std::string_view> patterns;
  bool nfc = false;            // the tokenizers of these models normalize to NFC; GGUF has no key for it
  bool ignore_merges = false;  // a whole word that is a token is that token
  bool add_bos = false;        // where the file has no add_bos_token
  bool add_sep = false;        // ends with the separator token, likewise
};

inline constexpr std::string_view kTrailingSpaceSplit = R"(\s+$)";

// nullptr if the name is unknown.
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);
// All known names, for the error.
std::vector<std::string_view> gguf_pre_tokenizer_names();

}  // namespace quire
