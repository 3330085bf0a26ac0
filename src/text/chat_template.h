// Purpose: render a model's chat template (Jinja) to the prompt text, within limits on steps, output and
// time. In: template source, a JSON context. Out: text, in pieces that say which came from the template and
// which from the context's messages (so that control tokens spelled by a user stay literal). Thread:
// immutable after parsing; render() from any thread. Out of scope: building the context from a request
// (api/), tokenizing (tokenizer.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "text/tokenizer.h"

namespace quire {

struct TemplateLimits {
  std::int64_t max_steps = 5'000'000;         // evaluated nodes
  std::size_t max_output_bytes = 32u << 20;   // rendered text, and any single string value on the way
  std::size_t max_memory_bytes = 256u << 20;  // estimate over live values
  int max_depth = 200;                        // nesting of expressions, blocks, macro calls
  double max_seconds = 2.0;                   // wall clock
};

class ChatTemplate {
 public:
  static Result<std::unique_ptr<ChatTemplate>> parse(std::string source, const TemplateLimits& limits = {});
  ~ChatTemplate();

  // context: an object; its keys are the template's global variables (messages, tools, add_generation_prompt,
  // bos_token, eos_token, ...). now: what strftime_now() formats, local time; default the present.
  // An error holds raise_exception()'s own text, or what is wrong and at which template line.
  // Strings from context["messages"], ["tools"] and ["documents"] are untrusted, so are values derived from
  // them (slices, trims, joins, replacements, tojson); template literals and other context keys are trusted.
  // Adjacent pieces of equal trust are merged.
  Result<std::vector<PromptPiece>> render(const nlohmann::ordered_json& context,
                                          std::optional<std::int64_t> now_unix_seconds = std::nullopt) const;

  const std::string& source() const;
  // True if the template reads this global name anywhere (e.g. "tools", "enable_thinking").
  bool mentions(std::string_view name) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
