#include "text/chat_template.h"

#include <algorithm>
#include <ctime>
#include <exception>

#include <fmt/core.h>

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace quire {

struct ChatTemplate::Impl {
  std::string source;
  TemplateLimits limits;
  std::unique_ptr<jinja::Ast> ast;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::parse(std::string source, const TemplateLimits& limits) {
  if (source.size() > limits.max_output_bytes) {
    return invalid(fmt::format("the template has more than {} bytes (limit)", limits.max_output_bytes));
  }
  auto impl = std::make_unique<Impl>();
  impl->source = std::move(source);
  impl->limits = limits;
  try {
    impl->ast = jinja::parse_template(impl->source, impl->limits);
  } catch (const jinja::TemplateError& error) {
    return invalid(error.message);
  }
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

Result<std::vector<PromptPiece>> ChatTemplate::render(const nlohmann::ordered_json& context,
                                                      std::optional<std::int64_t> now_unix_seconds) const {
  if (!context.is_object()) return invalid("the context of a template must be a JSON object");
  const std::int64_t now = now_unix_seconds.value_or(static_cast<std::int64_t>(std::time(nullptr)));
  jinja::Runtime runtime(impl_->limits);
  int line = 1;
  try {
    jinja::TrustText text;
    {
      jinja::Interpreter interpreter(*impl_->ast, runtime, context, now);
      try {
        text = interpreter.render();
      } catch (...) {
        line = interpreter.line();
        throw;
      }
    }
    std::vector<PromptPiece> pieces;
    text.for_each_run([&](std::size_t begin, std::size_t end, bool trusted) {
      pieces.push_back({text.bytes().substr(begin, end - begin), trusted});
    });
    return pieces;
  } catch (const jinja::TemplateError& error) {
    return invalid(error.own_text ? error.message : fmt::format("template line {}: {}", line, error.message));
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kTooLarge, fmt::format("template line {}: out of memory", line));
  }
}

const std::string& ChatTemplate::source() const {
  return impl_->source;
}

bool ChatTemplate::mentions(std::string_view name) const {
  const auto& symbols = impl_->ast->symbols;
  const auto at = std::find(symbols.begin(), symbols.end(), name);
  return at != symbols.end() && impl_->ast->symbol_is_read[static_cast<std::size_t>(at - symbols.begin())];
}

}  // namespace quire
