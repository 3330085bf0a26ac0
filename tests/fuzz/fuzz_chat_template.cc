// Chat templates: the input is a template, or a template, a zero byte and a JSON context for it. Neither may
// crash the interpreter, outlast its limits or mislabel where text came from.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <nlohmann/json.hpp>

#include "text/chat_template.h"

namespace {

const nlohmann::ordered_json& default_context() {
  static const auto context = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": " \u00e9\u732b <b> "},
                 {"role": "assistant", "content": null,
                  "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, true, null]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "s": "text", "n": 3, "l": [3, 1, 2], "d": {"a": 1}})");
  return context;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  quire::TemplateLimits limits;
  limits.max_steps = 50'000;
  limits.max_output_bytes = 1u << 20;
  limits.max_memory_bytes = 16u << 20;
  limits.max_seconds = 1.0;
  auto parsed = quire::ChatTemplate::parse(input.substr(0, zero), limits);
  if (!parsed.ok()) {
    if (parsed.error().message.empty()) std::abort();
    return 0;
  }
  nlohmann::ordered_json context = default_context();
  if (zero != std::string::npos) {
    auto given = nlohmann::ordered_json::parse(input.substr(zero + 1), nullptr, /*allow_exceptions=*/false);
    if (given.is_object()) context = std::move(given);
  }
  const auto pieces = (*parsed)->render(context, 1'796'113'800);
  if (!pieces.ok()) return 0;
  std::size_t total = 0;
  for (std::size_t i = 0; i < pieces->size(); ++i) {
    const auto& piece = (*pieces)[i];
    total += piece.text.size();
    if (piece.text.empty() || (i > 0 && (*pieces)[i - 1].trusted == piece.trusted)) std::abort();
  }
  if (total > limits.max_output_bytes) std::abort();
  return 0;
}
