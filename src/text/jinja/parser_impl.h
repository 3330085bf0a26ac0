// The parser's class, split over parser.cc (statements) and parser_expr.cc (expressions).
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace quire::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const TemplateLimits& limits);
  std::unique_ptr<Ast> run();

 private:
  // Bounds the parser's own recursion.
  class Nesting {
   public:
    explicit Nesting(Parser& parser);
    ~Nesting() { --parser_.depth_; }

   private:
    Parser& parser_;
  };
  // Sets a flag for the life of a scope.
  class Flag {
   public:
    Flag(bool& flag, bool value) : flag_(flag), before_(flag) { flag = value; }
    ~Flag() { flag_ = before_; }

   private:
    bool& flag_;
    bool before_;
  };

  // tokens
  const Token& current() const { return tokens_[position_]; }
  const Token& look() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool at_type(TokenType type) const { return current().type == type; }
  bool at_op(std::string_view op) const { return at_type(TokenType::kOperator) && current().text == op; }
  bool at_name(std::string_view name) const { return at_type(TokenType::kName) && current().text == name; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_block_end();
  std::string expect_name();
  [[noreturn]] void fail_here(const std::string& message) const;
  [[noreturn]] void fail_at(int line, const std::string& message) const;
  std::string describe_current() const;
  void note_unknown(int line, const std::string& message);

  Symbol symbol(const std::string& name);
  Value literal(std::string text);
  void set_height(Expr& expr, std::initializer_list<const Expr*> children) const;
  template <typename Items>
  void set_height_of_items(Expr& expr, const Items& items) const;
  void set_height_of_args(Expr& expr, const CallArgs& args) const;

  // statements
  Body parse_body(std::initializer_list<std::string_view> end_names);
  void parse_statement(Body& out);
  std::unique_ptr<Stmt> parse_if();
  std::unique_ptr<Stmt> parse_for();
  std::unique_ptr<Stmt> parse_set();
  std::unique_ptr<Stmt> parse_macro();
  std::unique_ptr<Stmt> parse_call_block();
  std::unique_ptr<Stmt> parse_filter_block();
  std::unique_ptr<Stmt> parse_with();
  std::unique_ptr<Stmt> parse_scope(const std::string& keyword, int line);
  void parse_print(Body& out);
  void parse_signature(MacroDef& macro);
  void parse_macro_body(MacroDef& macro, std::string_view end_name);
  Target parse_target(bool with_namespace);
  Target parse_single_target(bool with_namespace);
  std::vector<FilterCall> parse_filter_chain();

  // expressions
  ExprPtr parse_expression(bool with_condition = true);
  ExprPtr parse_condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter = true);
  ExprPtr parse_primary();
  ExprPtr parse_number();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_filters(ExprPtr expr);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_filter(ExprPtr operand);
  ExprPtr parse_test(ExprPtr operand);
  ExprPtr parse_list();
  ExprPtr parse_dict();
  // in_parentheses: `()` is the empty tuple. end_name: a name that ends the tuple besides the usual ends.
  ExprPtr parse_tuple(bool with_condition = true, bool in_parentheses = false,
                      std::string_view end_name = {});
  bool at_tuple_end(std::string_view end_name) const;
  CallArgs parse_call_args();
  FilterCall parse_filter_call();
  std::string parse_dotted_name();

  const std::vector<Token> tokens_;
  const TemplateLimits& limits_;
  std::size_t position_ = 0;
  int depth_ = 0;
  int num_loops_ = 0;                 // enclosing for loops of the current macro or template
  int num_loop_stores_ = 0;           // assignments to a variable named loop
  bool soft_ = false;                 // in a branch: unknown filters are errors only when reached
  std::vector<std::string> unknown_;  // messages about filters and tests outside of branches
  std::unique_ptr<Ast> ast_;
  std::unordered_map<std::string, Symbol> symbol_ids_;
  std::unordered_map<std::string, Value> literal_ids_;
  std::vector<std::int64_t> num_reads_;  // per symbol
};

}  // namespace quire::jinja
