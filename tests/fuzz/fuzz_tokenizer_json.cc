// Any bytes as a tokenizer.json, with a text after them: an error that says something, or a tokenizer whose
// ids are in its vocabulary and which decodes them. The input is the file, then (after the byte 0xff, which
// JSON cannot hold) the text.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/log.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quire::set_log_level(quire::LogLevel::kOff);
  std::string_view json(reinterpret_cast<const char*>(data), size);
  std::string_view text = "Hello  w\xc3\xb6rld 123\n\xf0\x9f\xa6\x99 don't <s>\xff";
  if (const std::size_t border = json.find('\xff'); border != std::string_view::npos) {
    text = json.substr(border + 1);
    json = json.substr(0, border);
  }
  const auto tokenizer = quire::load_tokenizer_json(json, "", "fuzz.json");
  if (!tokenizer.ok()) {
    QUIRE_CHECK(!tokenizer.error().message.empty());
    return 0;
  }
  const quire::Tokenizer& loaded = **tokenizer;
  const std::size_t half = text.size() / 2;
  const auto ids = loaded.encode(text, {.add_special_tokens = true, .parse_special = true});
  const auto mixed = loaded.encode_pieces(
      {{std::string(text.substr(0, half)), true}, {std::string(text.substr(half)), false}}, true);
  quire::Detokenizer detokenizer(loaded, false, true);
  for (const auto* list : {&ids, &mixed}) {
    for (const quire::TokenId id : *list) {
      QUIRE_CHECK(id >= 0 && id < loaded.vocab_size()) << id;
      QUIRE_CHECK(quire::is_valid_utf8(detokenizer.push(id)));
    }
  }
  return 0;
}
