// Purpose: run a parsed template over a context. In: Ast, global values, time. Out: text with trust.
// Thread: one Interpreter per render, one thread. Out of scope: the public interface (chat_template.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/arguments.h"
#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace quire::jinja {

// Variables of a body. A macro keeps the scope that it was defined in.
struct Scope : Object {
  Scope(Runtime* object_owner, Ref<Scope> outer)
      : Object(Kind::kNone, object_owner), parent(std::move(outer)) {}
  Ref<Scope> parent;
  std::vector<std::pair<Symbol, Value>> variables;
  bool captured = false;

  Value* find(Symbol symbol);
  void set(Runtime& runtime, Symbol symbol, Value value);
};

struct LoopObject;

class Interpreter {
 public:
  // now: local time as seconds since 1970, for strftime_now().
  Interpreter(const Ast& ast, Runtime& runtime, const nlohmann::ordered_json& context, std::int64_t now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  TrustText render();

  Runtime& runtime() { return runtime_; }
  int line() const { return line_; }
  std::int64_t now() const { return now_; }

  Value call(const Value& callee, Arguments& arguments);
  Value call_macro(const MacroDef& macro, const Ref<Scope>& closure, const Arguments& arguments);
  // The next element a loop will visit, after its condition; false at the end.
  bool loop_peek(LoopObject& loop);
  Value run_recursive_loop(LoopObject& loop, const Value& iterable);
  bool compare(CompareOp op, const Value& a, const Value& b);
  // Objects that could hold themselves; cleared when the render ends.
  void remember(const Ref<NamespaceObject>& ns) { namespaces_.push_back(ns); }

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class Capture;  // redirects output for a scope
  friend struct LoopObject;

  Flow run_body(const Body& body, const Ref<Scope>& scope);
  Flow run_statement(const Stmt& stmt, const Ref<Scope>& scope);
  Flow run_if(const IfStmt& stmt, const Ref<Scope>& scope);
  void run_for(const ForStmt& stmt, const Ref<Scope>& scope, const Value& iterable, int depth);
  void run_set_block(const SetBlockStmt& stmt, const Ref<Scope>& scope);
  void run_call_block(const CallBlockStmt& stmt, const Ref<Scope>& scope);
  void run_filter_block(const FilterBlockStmt& stmt, const Ref<Scope>& scope);
  void run_with(const WithStmt& stmt, const Ref<Scope>& scope);
  void assign(const Target& target, Value value, const Ref<Scope>& target_scope);
  Value make_macro(const MacroDef& macro, const Ref<Scope>& scope);
  Value capture_body(const Body& body, const Ref<Scope>& scope);
  Ref<Scope> new_scope(const Ref<Scope>& parent);

  Value evaluate(const Expr& expr, const Ref<Scope>& scope);
  Value evaluate_name(Symbol symbol, const Ref<Scope>& scope);
  Value evaluate_items(const std::vector<ExprPtr>& items, const Ref<Scope>& scope, bool tuple);
  Value evaluate_dict(const DictExpr& expr, const Ref<Scope>& scope);
  Value evaluate_unary(const UnaryExpr& expr, const Ref<Scope>& scope);
  Value evaluate_binary(const BinaryExpr& expr, const Ref<Scope>& scope);
  Value evaluate_compare(const CompareExpr& expr, const Ref<Scope>& scope);
  Value evaluate_concat(const ConcatExpr& expr, const Ref<Scope>& scope);
  Value evaluate_condition(const ConditionExpr& expr, const Ref<Scope>& scope);
  Value evaluate_slice(const SliceExpr& expr, const Ref<Scope>& scope);
  Value evaluate_call(const CallExpr& expr, const Ref<Scope>& scope, const Value* caller);
  Value evaluate_filter(const FilterExpr& expr, const Ref<Scope>& scope);
  Value evaluate_test(const TestExpr& expr, const Ref<Scope>& scope);
  void evaluate_arguments(const CallArgs& args, const Ref<Scope>& scope, Arguments& out);
  Value apply_filters(const std::vector<FilterCall>& calls, Value input, const Ref<Scope>& scope);

  const Ast& ast_;
  Runtime& runtime_;
  const std::int64_t now_;
  int line_ = 1;
  int num_calls_ = 0;  // nested macro calls and recursive loops
  TrustText* out_ = nullptr;
  std::vector<Value> globals_;  // by symbol
  std::vector<bool> is_global_;
  Ref<Scope> top_;
  std::vector<Ref<Scope>> captured_;
  std::vector<Ref<NamespaceObject>> namespaces_;
};

// Binary operators (operators.cc).
Value add_values(Interpreter& interpreter, const Value& a, const Value& b);
Value arithmetic(Interpreter& interpreter, BinaryOp op, const Value& a, const Value& b);
Value negate(const Value& value);
// A function, bound method or other callable as a value.
Value make_function(Runtime& runtime, const struct Function& function);
Value make_bound_method(Runtime& runtime, const struct Method& method, const Value& self);
TrustText strftime_text(std::int64_t now, const TrustText& format);

}  // namespace quire::jinja
