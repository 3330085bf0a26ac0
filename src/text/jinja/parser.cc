// Statements and the token cursor; expressions are in parser_expr.cc.
#include "text/jinja/parser.h"

#include <algorithm>

#include <fmt/core.h>

#include "text/jinja/parser_impl.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace quire::jinja {

std::unique_ptr<Ast> parse_template(std::string_view source, const TemplateLimits& limits) {
  if (!is_valid_utf8(source)) fail("the template is not valid UTF-8");
  return Parser(tokenize_template(source), limits).run();
}

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (++parser_.depth_ > parser_.limits_.max_depth) {
    const int line = parser_.current().line;
    --parser_.depth_;
    parser_.fail_at(line, fmt::format("nested more than {} levels deep (limit)", parser_.limits_.max_depth));
  }
}

Parser::Parser(std::vector<Token> tokens, const TemplateLimits& limits)
    : tokens_(std::move(tokens)), limits_(limits), ast_(std::make_unique<Ast>()) {
  ast_->loop_symbol = symbol("loop");
  ast_->caller_symbol = symbol("caller");
  ast_->varargs_symbol = symbol("varargs");
  ast_->kwargs_symbol = symbol("kwargs");
}

std::unique_ptr<Ast> Parser::run() {
  ast_->body = parse_body({});
  if (!unknown_.empty()) fail(unknown_.front());
  for (const std::int64_t reads : num_reads_) ast_->symbol_is_read.push_back(reads > 0);
  return std::move(ast_);
}

Token Parser::take() {
  const Token& token = tokens_[position_];
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool Parser::skip_op(std::string_view op) {
  if (!at_op(op)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail_here(fmt::format("expected '{}', got {}", op, describe_current()));
}

void Parser::expect_block_end() {
  if (!at_type(TokenType::kBlockEnd)) {
    fail_here(fmt::format("expected the end of the block '%}}', got {}", describe_current()));
  }
  take();
}

std::string Parser::expect_name() {
  if (!at_type(TokenType::kName)) fail_here(fmt::format("expected a name, got {}", describe_current()));
  return take().text;
}

void Parser::fail_here(const std::string& message) const {
  fail_at(current().line, message);
}

void Parser::fail_at(int line, const std::string& message) const {
  fail(fmt::format("template line {}: {}", line, message));
}

// Outside of branches an unknown filter or test is an error even if it is never reached.
void Parser::note_unknown(int line, const std::string& message) {
  if (!soft_) unknown_.push_back(fmt::format("template line {}: {}", line, message));
}

std::string Parser::describe_current() const {
  switch (current().type) {
    case TokenType::kEnd:
      return "the end of the template";
    case TokenType::kVariableEnd:
      return "'}}'";
    case TokenType::kBlockEnd:
      return "'%}'";
    default:
      return fmt::format("'{}'", current().text);
  }
}

Symbol Parser::symbol(const std::string& name) {
  const auto [at, is_new] = symbol_ids_.try_emplace(name, static_cast<Symbol>(ast_->symbols.size()));
  if (is_new) {
    ast_->symbols.push_back(name);
    num_reads_.push_back(0);
  }
  return at->second;
}

Value Parser::literal(std::string text) {
  const auto at = literal_ids_.find(text);
  if (at != literal_ids_.end()) return at->second;
  ast_->literals.push_back(std::make_unique<StringObject>(nullptr, TrustText(text, true), false));
  Value value(ast_->literals.back().get());
  literal_ids_.emplace(std::move(text), value);
  return value;
}

Body Parser::parse_body(std::initializer_list<std::string_view> end_names) {
  const Nesting nesting(*this);
  const int first_line = current().line;
  Body body;
  while (true) {
    switch (current().type) {
      case TokenType::kData: {
        auto stmt = std::make_unique<TextStmt>(current().line);
        stmt->text = take().text;
        body.push_back(std::move(stmt));
        break;
      }
      case TokenType::kVariableBegin: {
        auto stmt = std::make_unique<OutputStmt>(take().line);
        stmt->expr = parse_tuple();
        if (!at_type(TokenType::kVariableEnd)) {
          fail_here(fmt::format("expected the end of the print '}}}}', got {}", describe_current()));
        }
        take();
        body.push_back(std::move(stmt));
        break;
      }
      case TokenType::kBlockBegin:
        take();
        if (at_type(TokenType::kName) &&
            std::find(end_names.begin(), end_names.end(), current().text) != end_names.end()) {
          return body;
        }
        parse_statement(body);
        expect_block_end();
        break;
      case TokenType::kEnd:
        if (end_names.size() == 0) return body;
        fail_at(first_line, fmt::format("the block is never closed with '{}'", *(end_names.end() - 1)));
      default:
        fail_here(fmt::format("unexpected {}", describe_current()));
    }
  }
}

void Parser::parse_statement(Body& out) {
  const int line = current().line;
  const std::string keyword = expect_name();
  if (keyword == "if") return out.push_back(parse_if());
  if (keyword == "for") return out.push_back(parse_for());
  if (keyword == "set") return out.push_back(parse_set());
  if (keyword == "macro") return out.push_back(parse_macro());
  if (keyword == "call") return out.push_back(parse_call_block());
  if (keyword == "filter") return out.push_back(parse_filter_block());
  if (keyword == "with") return out.push_back(parse_with());
  if (keyword == "print") return parse_print(out);
  if (keyword == "generation" || keyword == "block" || keyword == "autoescape") {
    return out.push_back(parse_scope(keyword, line));
  }
  if (keyword == "break" || keyword == "continue") {
    if (num_loops_ == 0) fail_at(line, fmt::format("'{}' outside of a loop", keyword));
    if (keyword == "break") return out.push_back(std::make_unique<BreakStmt>(line));
    return out.push_back(std::make_unique<ContinueStmt>(line));
  }
  if (keyword == "include" || keyword == "import" || keyword == "from" || keyword == "extends") {
    fail_at(line, fmt::format("'{}' is not possible: a chat template stands alone", keyword));
  }
  fail_at(line, fmt::format("unknown tag '{}'", keyword));
}

std::unique_ptr<Stmt> Parser::parse_if() {
  auto stmt = std::make_unique<IfStmt>(current().line);
  const Flag soft(soft_, true);
  while (true) {
    ExprPtr condition = parse_tuple(false);
    expect_block_end();
    Body body = parse_body({"elif", "else", "endif"});
    stmt->branches.emplace_back(std::move(condition), std::move(body));
    const std::string keyword = expect_name();
    if (keyword == "elif") continue;
    if (keyword == "else") {
      expect_block_end();
      stmt->otherwise = parse_body({"endif"});
      expect_name();
    }
    return stmt;
  }
}

std::unique_ptr<Stmt> Parser::parse_for() {
  auto stmt = std::make_unique<ForStmt>(current().line);
  const int num_loop_stores = num_loop_stores_;
  stmt->target = parse_target(false);
  if (!skip_name("in")) fail_here(fmt::format("expected 'in', got {}", describe_current()));
  stmt->iterable = parse_tuple(false, false, "recursive");
  const Flag soft(soft_, false);
  if (skip_name("if")) stmt->condition = parse_expression();
  stmt->recursive = skip_name("recursive");
  expect_block_end();
  const auto loop = static_cast<std::size_t>(ast_->loop_symbol);
  const std::int64_t reads = num_reads_[loop];
  ++num_loops_;
  stmt->body = parse_body({"else", "endfor"});
  --num_loops_;
  stmt->uses_loop = stmt->recursive || num_reads_[loop] > reads;
  if (expect_name() == "else") {
    expect_block_end();
    stmt->otherwise = parse_body({"endfor"});
    expect_name();
  }
  if (num_loop_stores_ > num_loop_stores)
    fail_at(stmt->line, "the variable 'loop' of a for cannot be assigned");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_set() {
  const int line = current().line;
  Target target = parse_target(true);
  if (skip_op("=")) {
    auto stmt = std::make_unique<SetStmt>(line);
    stmt->target = std::move(target);
    stmt->expr = parse_tuple();
    return stmt;
  }
  auto stmt = std::make_unique<SetBlockStmt>(line);
  stmt->target = std::move(target);
  stmt->filters = parse_filter_chain();
  expect_block_end();
  const Flag soft(soft_, false);
  stmt->body = parse_body({"endset"});
  expect_name();
  return stmt;
}

void Parser::parse_signature(MacroDef& macro) {
  expect_op("(");
  while (!at_op(")")) {
    if (!macro.parameters.empty()) {
      expect_op(",");
    }
    const int num_loop_stores = num_loop_stores_;
    Target target = parse_single_target(false);
    num_loop_stores_ = num_loop_stores;
    if (target.kind != Target::Kind::kName) fail_here("a macro's parameter must be a name");
    MacroDef::Parameter parameter;
    parameter.symbol = target.symbol;
    const std::string name = ast_->symbols[static_cast<std::size_t>(target.symbol)];
    parameter.name = literal(name);
    for (const auto& other : macro.parameters) {
      if (other.symbol == parameter.symbol) fail_here(fmt::format("duplicate parameter '{}'", name));
    }
    if (skip_op("=")) {
      parameter.default_value = parse_expression();
    } else if (!macro.parameters.empty() && macro.parameters.back().default_value != nullptr) {
      fail_here("a parameter without a default follows one with a default");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  expect_op(")");
}

void Parser::parse_macro_body(MacroDef& macro, std::string_view end_name) {
  const auto reads_of = [this](Symbol s) { return num_reads_[static_cast<std::size_t>(s)]; };
  const std::int64_t varargs = reads_of(ast_->varargs_symbol);
  const std::int64_t kwargs = reads_of(ast_->kwargs_symbol);
  const std::int64_t caller = reads_of(ast_->caller_symbol);
  const Flag soft(soft_, false);
  const int outer_loops = std::exchange(num_loops_, 0);
  macro.body = parse_body({end_name});
  num_loops_ = outer_loops;
  expect_name();
  const auto has_parameter = [&macro](Symbol s) {
    return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                       [s](const MacroDef::Parameter& parameter) { return parameter.symbol == s; });
  };
  for (const MacroDef::Parameter& parameter : macro.parameters) {
    if (parameter.symbol == ast_->caller_symbol && parameter.default_value == nullptr &&
        reads_of(ast_->caller_symbol) > caller) {
      fail_here("the parameter 'caller' needs a default");
    }
  }
  macro.uses_varargs = reads_of(ast_->varargs_symbol) > varargs && !has_parameter(ast_->varargs_symbol);
  macro.uses_kwargs = reads_of(ast_->kwargs_symbol) > kwargs && !has_parameter(ast_->kwargs_symbol);
  macro.uses_caller = reads_of(ast_->caller_symbol) > caller && !has_parameter(ast_->caller_symbol);
}

std::unique_ptr<Stmt> Parser::parse_macro() {
  auto stmt = std::make_unique<MacroStmt>(current().line);
  Target target = parse_single_target(false);
  stmt->symbol = target.symbol;
  stmt->macro.name = ast_->symbols[static_cast<std::size_t>(target.symbol)];
  parse_signature(stmt->macro);
  expect_block_end();
  parse_macro_body(stmt->macro, "endmacro");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_call_block() {
  auto stmt = std::make_unique<CallBlockStmt>(current().line);
  stmt->caller.name = "caller";
  if (at_op("(")) parse_signature(stmt->caller);
  stmt->call = parse_expression();
  if (stmt->call->kind != ExprKind::kCall) fail_at(stmt->line, "expected a call after 'call'");
  expect_block_end();
  parse_macro_body(stmt->caller, "endcall");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_filter_block() {
  auto stmt = std::make_unique<FilterBlockStmt>(current().line);
  stmt->filters.push_back(parse_filter_call());
  for (FilterCall& call : parse_filter_chain()) stmt->filters.push_back(std::move(call));
  expect_block_end();
  const Flag soft(soft_, false);
  stmt->body = parse_body({"endfilter"});
  expect_name();
  return stmt;
}

std::vector<FilterCall> Parser::parse_filter_chain() {
  std::vector<FilterCall> calls;
  while (skip_op("|")) calls.push_back(parse_filter_call());
  return calls;
}

std::unique_ptr<Stmt> Parser::parse_with() {
  auto stmt = std::make_unique<WithStmt>(current().line);
  while (!at_type(TokenType::kBlockEnd)) {
    if (!stmt->assignments.empty()) expect_op(",");
    const int num_loop_stores = num_loop_stores_;
    Target target = parse_target(false);
    num_loop_stores_ = num_loop_stores;  // a new variable, not an assignment
    expect_op("=");
    stmt->assignments.emplace_back(std::move(target), parse_expression());
  }
  expect_block_end();
  const Flag soft(soft_, false);
  stmt->body = parse_body({"endwith"});
  expect_name();
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_scope(const std::string& keyword, int line) {
  auto stmt = std::make_unique<ScopeStmt>(line);
  if (keyword == "block") {
    expect_name();
    stmt->isolated = !skip_name("scoped");
    skip_name("required");
  } else if (keyword == "autoescape") {
    const ExprPtr flag = parse_expression();
    const bool off = flag->kind == ExprKind::kConst && !truthy(static_cast<const ConstExpr&>(*flag).value);
    if (!off) fail_at(line, "autoescape is not possible in a chat template: its output is not HTML");
  }
  expect_block_end();
  const Flag soft(soft_, false);
  // A generation block is the body of a call in Hugging Face's extension: no break out of it.
  const int outer_loops = keyword == "autoescape" ? num_loops_ : std::exchange(num_loops_, 0);
  const std::string end_name = "end" + keyword;
  stmt->body = parse_body({end_name});
  num_loops_ = outer_loops;
  expect_name();
  if (keyword == "block" && at_type(TokenType::kName)) take();
  return stmt;
}

void Parser::parse_print(Body& out) {
  const int line = current().line;
  for (bool first = true; !at_type(TokenType::kBlockEnd); first = false) {
    if (!first) expect_op(",");
    auto stmt = std::make_unique<OutputStmt>(line);
    stmt->expr = parse_expression();
    out.push_back(std::move(stmt));
  }
}

Target Parser::parse_single_target(bool with_namespace) {
  const Nesting nesting(*this);
  Target target;
  if (skip_op("(")) {
    target = parse_target(with_namespace);
    expect_op(")");
    return target;
  }
  const std::string name = expect_name();
  static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
  if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
    fail_here(fmt::format("cannot assign to '{}'", name));
  }
  target.symbol = symbol(name);
  num_loop_stores_ += name == "loop" ? 1 : 0;
  if (with_namespace && skip_op(".")) {
    target.kind = Target::Kind::kNamespaceAttribute;
    target.attribute = literal(expect_name());
    ++num_reads_[static_cast<std::size_t>(target.symbol)];
  }
  return target;
}

Target Parser::parse_target(bool with_namespace) {
  Target first = parse_single_target(with_namespace);
  if (!at_op(",")) return first;
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.items.push_back(std::move(first));
  while (skip_op(",")) {
    if (at_op("=") || at_op(")") || at_name("in") || at_type(TokenType::kBlockEnd)) break;
    tuple.items.push_back(parse_single_target(with_namespace));
  }
  return tuple;
}

}  // namespace quire::jinja
