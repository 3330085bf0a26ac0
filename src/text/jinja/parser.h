// Purpose: tokens -> syntax tree, with Jinja's grammar. In: template source. Out: Ast, or a thrown
// TemplateError with the line. Thread: pure function.
#pragma once

#include <memory>
#include <string_view>

#include "text/jinja/ast.h"

namespace quire::jinja {

std::unique_ptr<Ast> parse_template(std::string_view source, const TemplateLimits& limits);

}  // namespace quire::jinja
