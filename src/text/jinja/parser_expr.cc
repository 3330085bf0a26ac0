// Expressions of the template grammar.
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/parser_impl.h"

namespace quire::jinja {
namespace {

// Chains of operators are parsed by loops but evaluated and destroyed by recursion: their height is bounded
// too, more generously than nesting that a reader sees.
constexpr int kHeightPerDepth = 5;

template <typename T>
std::unique_ptr<T> node(int line) {
  return std::make_unique<T>(line);
}

}  // namespace

void Parser::set_height(Expr& expr, std::initializer_list<const Expr*> children) const {
  for (const Expr* child : children) {
    if (child != nullptr) expr.height = std::max(expr.height, child->height + 1);
  }
  if (expr.height > kHeightPerDepth * limits_.max_depth)
    fail_at(expr.line, "the expression is too long (limit)");
}

template <typename Items>
void Parser::set_height_of_items(Expr& expr, const Items& items) const {
  for (const auto& item : items) set_height(expr, {item.get()});
}

void Parser::set_height_of_args(Expr& expr, const CallArgs& args) const {
  set_height_of_items(expr, args.positional);
  for (const auto& named : args.named) set_height(expr, {named.second.get()});
  set_height(expr, {args.star.get(), args.double_star.get()});
}

ExprPtr Parser::parse_expression(bool with_condition) {
  return with_condition ? parse_condition() : parse_or();
}

ExprPtr Parser::parse_condition() {
  const Nesting nesting(*this);
  const std::size_t num_unknown = unknown_.size();
  ExprPtr expr = parse_or();
  while (at_name("if")) {
    const Flag soft(soft_, true);
    unknown_.resize(num_unknown);  // what stands before the 'if' is in a branch as well
    auto condition = node<ConditionExpr>(take().line);
    condition->then = std::move(expr);
    condition->condition = parse_or();
    if (skip_name("else")) condition->otherwise = parse_condition();
    set_height(*condition, {condition->then.get(), condition->condition.get(), condition->otherwise.get()});
    expr = std::move(condition);
  }
  return expr;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (at_name("or")) {
    auto expr = node<OrExpr>(take().line);
    expr->left = std::move(left);
    expr->right = parse_and();
    set_height(*expr, {expr->left.get(), expr->right.get()});
    left = std::move(expr);
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (at_name("and")) {
    auto expr = node<AndExpr>(take().line);
    expr->left = std::move(left);
    expr->right = parse_not();
    set_height(*expr, {expr->left.get(), expr->right.get()});
    left = std::move(expr);
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const Nesting nesting(*this);
  auto expr = node<NotExpr>(take().line);
  expr->operand = parse_not();
  set_height(*expr, {expr->operand.get()});
  return expr;
}

ExprPtr Parser::parse_compare() {
  const int line = current().line;
  ExprPtr first = parse_sum();
  std::unique_ptr<CompareExpr> compare;
  while (true) {
    static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
        {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<", CompareOp::kLt},
        {"<=", CompareOp::kLe}, {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
    const auto* op =
        std::find_if(std::begin(kOps), std::end(kOps), [this](const auto& o) { return at_op(o.first); });
    CompareOp found = CompareOp::kIn;
    if (op != std::end(kOps)) {
      found = op->second;
      take();
    } else if (at_name("in")) {
      take();
    } else if (at_name("not") && look().type == TokenType::kName && look().text == "in") {
      take();
      take();
      found = CompareOp::kNotIn;
    } else {
      break;
    }
    if (compare == nullptr) {
      compare = node<CompareExpr>(line);
      compare->first = std::move(first);
      set_height(*compare, {compare->first.get()});
    }
    compare->rest.emplace_back(found, parse_sum());
    set_height(*compare, {compare->rest.back().second.get()});
  }
  if (compare != nullptr) return compare;
  return first;
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (at_op("+") || at_op("-")) {
    auto expr = node<BinaryExpr>(current().line);
    expr->op = take().text == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract;
    expr->left = std::move(left);
    expr->right = parse_concat();
    set_height(*expr, {expr->left.get(), expr->right.get()});
    left = std::move(expr);
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr first = parse_product();
  if (!at_op("~")) return first;
  auto expr = node<ConcatExpr>(current().line);
  expr->items.push_back(std::move(first));
  while (skip_op("~")) expr->items.push_back(parse_product());
  set_height_of_items(*expr, expr->items);
  return expr;
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (true) {
    static constexpr std::pair<std::string_view, BinaryOp> kOps[] = {{"*", BinaryOp::kMultiply},
                                                                     {"/", BinaryOp::kDivide},
                                                                     {"//", BinaryOp::kFloorDivide},
                                                                     {"%", BinaryOp::kModulo}};
    const auto* op =
        std::find_if(std::begin(kOps), std::end(kOps), [this](const auto& o) { return at_op(o.first); });
    if (op == std::end(kOps)) return left;
    auto expr = node<BinaryExpr>(take().line);
    expr->op = op->second;
    expr->left = std::move(left);
    expr->right = parse_power();
    set_height(*expr, {expr->left.get(), expr->right.get()});
    left = std::move(expr);
  }
}

// Associates to the left, unlike in Python.
ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  while (at_op("**")) {
    auto expr = node<BinaryExpr>(take().line);
    expr->op = BinaryOp::kPower;
    expr->left = std::move(left);
    expr->right = parse_unary();
    set_height(*expr, {expr->left.get(), expr->right.get()});
    left = std::move(expr);
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  ExprPtr expr;
  if (at_op("-") || at_op("+")) {
    const Nesting nesting(*this);
    auto unary = node<UnaryExpr>(current().line);
    unary->op = take().text == "-" ? UnaryOp::kNegative : UnaryOp::kPositive;
    unary->operand = parse_unary(false);
    set_height(*unary, {unary->operand.get()});
    expr = std::move(unary);
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  if (with_filter) expr = parse_filters(std::move(expr));
  return expr;
}

ExprPtr Parser::parse_primary() {
  const int line = current().line;
  switch (current().type) {
    case TokenType::kName: {
      const std::string name = take().text;
      if (name == "true" || name == "True") return std::make_unique<ConstExpr>(line, Value::boolean(true));
      if (name == "false" || name == "False") return std::make_unique<ConstExpr>(line, Value::boolean(false));
      if (name == "none" || name == "None") return std::make_unique<ConstExpr>(line, Value::none());
      const Symbol id = symbol(name);
      ++num_reads_[static_cast<std::size_t>(id)];
      return std::make_unique<NameExpr>(line, id);
    }
    case TokenType::kString: {
      std::string text;
      while (at_type(TokenType::kString)) text += take().text;
      return std::make_unique<ConstExpr>(line, literal(std::move(text)));
    }
    case TokenType::kInteger:
    case TokenType::kFloat:
      return parse_number();
    case TokenType::kOperator:
      if (skip_op("(")) {
        ExprPtr expr = parse_tuple(true, true);
        expect_op(")");
        return expr;
      }
      if (at_op("[")) return parse_list();
      if (at_op("{")) return parse_dict();
      [[fallthrough]];
    default:
      fail_here(fmt::format("unexpected {}", describe_current()));
  }
}

ExprPtr Parser::parse_number() {
  const Token token = take();
  if (token.type == TokenType::kFloat) {
    // to a double as Python reads it; from_chars needs no locale
    double d = 0;
    const auto read = std::from_chars(token.text.data(), token.text.data() + token.text.size(), d);
    if (read.ec == std::errc::result_out_of_range) d = std::strtod(token.text.c_str(), nullptr);
    return std::make_unique<ConstExpr>(token.line, Value::real(d));
  }
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char mark = static_cast<char>(digits[1] | 0x20);
    base = mark == 'x' ? 16 : (mark == 'o' ? 8 : (mark == 'b' ? 2 : 10));
    if (base != 10) digits.remove_prefix(2);
  }
  std::int64_t i = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), i, base);
  if (read.ec != std::errc()) {
    fail_at(token.line, fmt::format("the integer {} does not fit 64 bits", token.text.substr(0, 40)));
  }
  return std::make_unique<ConstExpr>(token.line, Value::integer(i));
}

ExprPtr Parser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (at_op(".") || at_op("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (at_op("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_filters(ExprPtr expr) {
  while (true) {
    if (at_op("|")) {
      expr = parse_filter(std::move(expr));
    } else if (at_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (at_op("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  const int line = current().line;
  if (skip_op(".")) {
    if (at_type(TokenType::kInteger)) {
      auto item = node<ItemExpr>(line);
      item->object = std::move(object);
      item->key = parse_number();
      set_height(*item, {item->object.get()});
      return item;
    }
    auto attribute = node<AttributeExpr>(line);
    attribute->object = std::move(object);
    attribute->name = literal(expect_name());
    set_height(*attribute, {attribute->object.get()});
    return attribute;
  }
  expect_op("[");
  if (at_op("]")) fail_here("expected a subscript");
  ExprPtr start;
  if (!at_op(":")) start = parse_expression();
  if (at_op(":")) {
    auto slice = node<SliceExpr>(line);
    slice->object = std::move(object);
    slice->start = std::move(start);
    take();
    if (!at_op(":") && !at_op("]") && !at_op(",")) slice->stop = parse_expression();
    if (skip_op(":") && !at_op("]") && !at_op(",")) slice->step = parse_expression();
    expect_op("]");
    set_height(*slice, {slice->object.get(), slice->start.get(), slice->stop.get(), slice->step.get()});
    return slice;
  }
  auto item = node<ItemExpr>(line);
  item->object = std::move(object);
  item->key = std::move(start);
  if (at_op(",")) {
    auto tuple = node<TupleExpr>(line);
    tuple->items.push_back(std::move(item->key));
    while (skip_op(",") && !at_op("]")) tuple->items.push_back(parse_expression());
    set_height_of_items(*tuple, tuple->items);
    item->key = std::move(tuple);
  }
  expect_op("]");
  set_height(*item, {item->object.get(), item->key.get()});
  return item;
}

CallArgs Parser::parse_call_args() {
  CallArgs args;
  expect_op("(");
  for (bool first = true; !at_op(")"); first = false) {
    if (!first) {
      expect_op(",");
      if (at_op(")")) break;
    }
    if (skip_op("**")) {
      if (args.double_star != nullptr) fail_here("only one ** argument is possible");
      args.double_star = parse_expression();
    } else if (skip_op("*")) {
      if (args.star != nullptr || args.double_star != nullptr) fail_here("misplaced * argument");
      args.star = parse_expression();
    } else if (at_type(TokenType::kName) && look().type == TokenType::kOperator && look().text == "=") {
      if (args.double_star != nullptr) fail_here("misplaced argument after **");
      Value name = literal(take().text);
      take();
      for (const auto& other : args.named) {
        if (other.first.bytes() == name.bytes())
          fail_here(fmt::format("argument '{}' is repeated", name.bytes()));
      }
      args.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!args.named.empty() || args.star != nullptr || args.double_star != nullptr) {
        fail_here("a positional argument follows a named one");
      }
      args.positional.push_back(parse_expression());
    }
  }
  expect_op(")");
  return args;
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  auto call = node<CallExpr>(current().line);
  call->callee = std::move(callee);
  call->args = parse_call_args();
  set_height(*call, {call->callee.get()});
  set_height_of_args(*call, call->args);
  return call;
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_name();
  while (skip_op(".")) name += "." + expect_name();
  return name;
}

FilterCall Parser::parse_filter_call() {
  FilterCall call;
  call.line = current().line;
  call.name = parse_dotted_name();
  call.filter = find_filter(call.name);
  if (call.filter == nullptr) note_unknown(call.line, fmt::format("no filter named '{}'", call.name));
  if (at_op("(")) call.args = parse_call_args();
  return call;
}

ExprPtr Parser::parse_filter(ExprPtr operand) {
  auto filter = node<FilterExpr>(current().line);
  expect_op("|");
  filter->operand = std::move(operand);
  filter->call = parse_filter_call();
  set_height(*filter, {filter->operand.get()});
  set_height_of_args(*filter, filter->call.args);
  return filter;
}

ExprPtr Parser::parse_test(ExprPtr operand) {
  auto test = node<TestExpr>(take().line);
  const int line = test->line;
  const bool negated = skip_name("not");
  test->operand = std::move(operand);
  test->name = parse_dotted_name();
  test->test = find_test(test->name);
  if (test->test == nullptr) note_unknown(line, fmt::format("no test named '{}'", test->name));
  const bool argument_follows = at_type(TokenType::kName) || at_type(TokenType::kString) ||
                                at_type(TokenType::kInteger) || at_type(TokenType::kFloat) || at_op("[") ||
                                at_op("{");
  if (at_op("(")) {
    test->args = parse_call_args();
  } else if (argument_follows && !at_name("else") && !at_name("or") && !at_name("and")) {
    if (at_name("is")) fail_here("tests cannot be chained with 'is'");
    const Nesting nesting(*this);
    test->args.positional.push_back(parse_postfix(parse_primary()));
  }
  set_height(*test, {test->operand.get()});
  set_height_of_args(*test, test->args);
  if (!negated) return test;
  auto negation = node<NotExpr>(line);
  negation->operand = std::move(test);
  set_height(*negation, {negation->operand.get()});
  return negation;
}

ExprPtr Parser::parse_list() {
  auto list = node<ListExpr>(current().line);
  expect_op("[");
  while (!at_op("]")) {
    if (!list->items.empty()) {
      expect_op(",");
      if (at_op("]")) break;
    }
    list->items.push_back(parse_expression());
  }
  expect_op("]");
  set_height_of_items(*list, list->items);
  return list;
}

ExprPtr Parser::parse_dict() {
  auto dict = node<DictExpr>(current().line);
  expect_op("{");
  while (!at_op("}")) {
    if (!dict->entries.empty()) {
      expect_op(",");
      if (at_op("}")) break;
    }
    ExprPtr key = parse_expression();
    expect_op(":");
    dict->entries.emplace_back(std::move(key), parse_expression());
    set_height(*dict, {dict->entries.back().first.get(), dict->entries.back().second.get()});
  }
  expect_op("}");
  return dict;
}

bool Parser::at_tuple_end(std::string_view end_name) const {
  return at_type(TokenType::kVariableEnd) || at_type(TokenType::kBlockEnd) || at_op(")") ||
         (!end_name.empty() && at_name(end_name));
}

ExprPtr Parser::parse_tuple(bool with_condition, bool in_parentheses, std::string_view end_name) {
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_op(",");
    if (at_tuple_end(end_name)) break;
    items.push_back(parse_expression(with_condition));
    if (!at_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!in_parentheses) fail_here(fmt::format("expected an expression, got {}", describe_current()));
  }
  auto tuple = node<TupleExpr>(line);
  tuple->items = std::move(items);
  set_height_of_items(*tuple, tuple->items);
  return tuple;
}

}  // namespace quire::jinja
