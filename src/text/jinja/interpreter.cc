// Statements, scopes, macros and loops; expressions are in evaluate.cc.
#include "text/jinja/interpreter.h"

#include <algorithm>

#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/loop.h"

namespace quire::jinja {

Value* Scope::find(Symbol symbol) {
  for (auto& variable : variables) {
    if (variable.first == symbol) return &variable.second;
  }
  return nullptr;
}

void Scope::set(Runtime& runtime, Symbol symbol, Value value) {
  if (Value* present = find(symbol)) {
    *present = std::move(value);
    return;
  }
  runtime.charge(sizeof(variables[0]));
  charged += sizeof(variables[0]);
  variables.emplace_back(symbol, std::move(value));
}

class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter) : interpreter_(interpreter), before_(interpreter.out_) {
    interpreter.out_ = &text_;
  }
  ~Capture() { interpreter_.out_ = before_; }
  TrustText take() { return std::move(text_); }

 private:
  Interpreter& interpreter_;
  TrustText* before_;
  TrustText text_;
};

namespace {

struct MacroObject : CallableObject {
  MacroObject(Runtime* object_owner, const MacroDef& def, Ref<Scope> scope)
      : CallableObject(object_owner), macro(def), closure(std::move(scope)) {}
  Value call(Interpreter& interpreter, Arguments& arguments) override {
    return interpreter.call_macro(macro, closure, arguments);
  }
  bool attribute(Interpreter& interpreter, std::string_view name, Value* out) override {
    Runtime& runtime = interpreter.runtime();
    if (name == "name") {
      *out = make_string(runtime, macro.name);
    } else if (name == "arguments") {
      std::vector<Value> names;
      for (const auto& parameter : macro.parameters) names.push_back(parameter.name);
      *out = make_tuple(runtime, std::move(names));
    } else if (name == "catch_kwargs" || name == "catch_varargs" || name == "caller") {
      *out = Value::boolean(name == "caller"         ? macro.uses_caller
                            : name == "catch_kwargs" ? macro.uses_kwargs
                                                     : macro.uses_varargs);
    } else {
      return false;
    }
    return true;
  }
  std::string describe() const override { return fmt::format("<Macro '{}'>", macro.name); }
  const char* type_name() const override { return "Macro"; }

  const MacroDef& macro;
  Ref<Scope> closure;
};

// Keys of the context whose strings are the conversation, not the model's own configuration.
bool is_untrusted_key(std::string_view key) {
  return key == "messages" || key == "tools" || key == "documents";
}

}  // namespace

Interpreter::Interpreter(const Ast& ast, Runtime& runtime, const nlohmann::ordered_json& context,
                         std::int64_t now)
    : ast_(ast), runtime_(runtime), now_(now) {
  globals_.resize(ast.symbols.size());
  is_global_.resize(ast.symbols.size());
  for (std::size_t i = 0; i < ast.symbols.size(); ++i) {
    const std::string& name = ast.symbols[i];
    if (!ast.symbol_is_read[i]) continue;
    if (const auto at = context.find(name); at != context.end()) {
      globals_[i] = from_json(runtime, *at, !is_untrusted_key(name));
    } else if (const Function* function = find_function(name)) {
      globals_[i] = make_function(runtime, *function);
    } else {
      continue;
    }
    is_global_[i] = true;
  }
  top_ = new_scope(Ref<Scope>());
}

// Macros hold scopes and scopes hold macros, and a namespace may hold itself: cut these circles.
Interpreter::~Interpreter() {
  for (const auto& scope : captured_) scope->variables.clear();
  for (const auto& ns : namespaces_) ns->attributes = Ref<DictObject>();
}

TrustText Interpreter::render() {
  TrustText out;
  out_ = &out;
  run_body(ast_.body, top_);
  out_ = nullptr;
  return out;
}

Ref<Scope> Interpreter::new_scope(const Ref<Scope>& parent) {
  return new_object<Scope>(runtime_, parent);
}

Interpreter::Flow Interpreter::run_body(const Body& body, const Ref<Scope>& scope) {
  runtime_.check_stack();
  for (const auto& stmt : body) {
    runtime_.step();
    line_ = stmt->line;
    const Flow flow = run_statement(*stmt, scope);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_statement(const Stmt& stmt, const Ref<Scope>& scope) {
  switch (stmt.kind) {
    case StmtKind::kText: {
      const std::string& text = static_cast<const TextStmt&>(stmt).text;
      out_->append(text, true);
      runtime_.work(text.size());
      runtime_.check_text_bytes(out_->size());
      break;
    }
    case StmtKind::kOutput:
      append_str(runtime_, *out_, evaluate(*static_cast<const OutputStmt&>(stmt).expr, scope));
      break;
    case StmtKind::kIf:
      return run_if(static_cast<const IfStmt&>(stmt), scope);
    case StmtKind::kFor: {
      const auto& loop = static_cast<const ForStmt&>(stmt);
      run_for(loop, scope, evaluate(*loop.iterable, scope), 1);
      break;
    }
    case StmtKind::kSet: {
      const auto& set = static_cast<const SetStmt&>(stmt);
      assign(set.target, evaluate(*set.expr, scope), scope);
      break;
    }
    case StmtKind::kSetBlock:
      run_set_block(static_cast<const SetBlockStmt&>(stmt), scope);
      break;
    case StmtKind::kMacro: {
      const auto& macro = static_cast<const MacroStmt&>(stmt);
      scope->set(runtime_, macro.symbol, make_macro(macro.macro, scope));
      break;
    }
    case StmtKind::kCallBlock:
      run_call_block(static_cast<const CallBlockStmt&>(stmt), scope);
      break;
    case StmtKind::kFilterBlock:
      run_filter_block(static_cast<const FilterBlockStmt&>(stmt), scope);
      break;
    case StmtKind::kWith:
      run_with(static_cast<const WithStmt&>(stmt), scope);
      break;
    case StmtKind::kScope: {
      const auto& block = static_cast<const ScopeStmt&>(stmt);
      return run_body(block.body, new_scope(block.isolated ? top_ : scope));
    }
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_if(const IfStmt& stmt, const Ref<Scope>& scope) {
  for (const auto& [condition, body] : stmt.branches) {
    if (truthy(evaluate(*condition, scope))) return run_body(body, scope);
  }
  return run_body(stmt.otherwise, scope);
}

bool Interpreter::loop_peek(LoopObject& loop) {
  if (loop.next < loop.accepted.size()) return true;
  while (loop.next_source < loop.source.size()) {
    runtime_.step();
    Value item = loop.source[loop.next_source++];
    if (loop.stmt->condition != nullptr) {
      const Ref<Scope> scope = new_scope(loop.scope);
      assign(loop.stmt->target, item, scope);
      if (!truthy(evaluate(*loop.stmt->condition, scope))) continue;
    }
    loop.accepted.push_back(std::move(item));
    return true;
  }
  return false;
}

void Interpreter::run_for(const ForStmt& stmt, const Ref<Scope>& scope, const Value& iterable, int depth) {
  const Ref<LoopObject> loop = new_object<LoopObject>(runtime_);
  // The loop variable may live on in a namespace: what it refers to must not.
  struct Close {
    LoopObject& loop;
    ~Close() { loop.close(); }
  } const close{*loop};
  loop->stmt = &stmt;
  loop->scope = scope;
  loop->depth = depth;
  loop->sized = has_length(iterable) && stmt.condition == nullptr;
  loop->source = iterate(runtime_, iterable);
  const std::size_t held = 2 * loop->source.capacity() * sizeof(Value);
  runtime_.charge(held);
  loop->charged += held;
  const Value loop_value(loop.get());
  bool completed = false;  // an iteration that a break or a continue ended does not count, as in jinja2
  while (loop_peek(*loop)) {
    loop->advance();
    runtime_.step();
    const Ref<Scope> inner = new_scope(scope);
    if (stmt.uses_loop) inner->set(runtime_, ast_.loop_symbol, loop_value);
    assign(stmt.target, loop->accepted[loop->next - 1], inner);
    const Flow flow = run_body(stmt.body, inner);
    line_ = stmt.line;
    completed |= flow == Flow::kNormal;
    if (flow == Flow::kBreak) break;
  }
  if (!completed) run_body(stmt.otherwise, new_scope(scope));
}

Value Interpreter::run_recursive_loop(LoopObject& loop, const Value& iterable) {
  if (loop.stmt == nullptr) fail("a loop is called after its end");
  if (!loop.stmt->recursive) {
    fail("TypeError: the loop must have the 'recursive' marker to be called recursively");
  }
  if (++num_calls_ > runtime_.limits().max_depth) fail("the loops nest too deeply (limit)");
  const ForStmt& stmt = *loop.stmt;
  const Ref<Scope> scope = loop.scope;
  Capture capture(*this);
  run_for(stmt, scope, iterable, loop.depth + 1);
  --num_calls_;
  return make_string(runtime_, capture.take());
}

void Interpreter::assign(const Target& target, Value value, const Ref<Scope>& scope) {
  switch (target.kind) {
    case Target::Kind::kName:
      scope->set(runtime_, target.symbol, std::move(value));
      return;
    case Target::Kind::kNamespaceAttribute: {
      const Value ns = evaluate_name(target.symbol, scope);
      if (!ns.is(Kind::kNamespace)) fail("cannot assign an attribute to something that is not a namespace");
      ns.ns().attributes->set(runtime_, target.attribute, std::move(value));
      return;
    }
    case Target::Kind::kTuple: {
      if (!is_iterable(value))
        fail(fmt::format("TypeError: cannot unpack non-iterable {} object", type_name(value)));
      std::vector<Value> items = iterate(runtime_, value);
      if (items.size() != target.items.size()) {
        fail(fmt::format("ValueError: {} values to unpack (expected {})", items.size(), target.items.size()));
      }
      for (std::size_t i = 0; i < items.size(); ++i) assign(target.items[i], std::move(items[i]), scope);
      return;
    }
  }
}

Value Interpreter::capture_body(const Body& body, const Ref<Scope>& scope) {
  Capture capture(*this);
  run_body(body, scope);
  return make_string(runtime_, capture.take());
}

void Interpreter::run_set_block(const SetBlockStmt& stmt, const Ref<Scope>& scope) {
  Value value = capture_body(stmt.body, new_scope(scope));
  assign(stmt.target, apply_filters(stmt.filters, std::move(value), scope), scope);
}

void Interpreter::run_filter_block(const FilterBlockStmt& stmt, const Ref<Scope>& scope) {
  Value value = capture_body(stmt.body, new_scope(scope));
  append_str(runtime_, *out_, apply_filters(stmt.filters, std::move(value), scope));
}

void Interpreter::run_with(const WithStmt& stmt, const Ref<Scope>& scope) {
  const Ref<Scope> inner = new_scope(scope);
  for (const auto& [target, expr] : stmt.assignments) assign(target, evaluate(*expr, scope), inner);
  run_body(stmt.body, inner);
}

void Interpreter::run_call_block(const CallBlockStmt& stmt, const Ref<Scope>& scope) {
  const Value caller = make_macro(stmt.caller, scope);
  append_str(runtime_, *out_, evaluate_call(static_cast<const CallExpr&>(*stmt.call), scope, &caller));
}

Value Interpreter::make_macro(const MacroDef& macro, const Ref<Scope>& scope) {
  for (const Scope* s = scope.get(); s != nullptr && !s->captured; s = s->parent.get()) {
    Ref<Scope> ref(const_cast<Scope*>(s));
    ref->captured = true;
    captured_.push_back(std::move(ref));
  }
  return Value(new_object<MacroObject>(runtime_, macro, scope).get());
}

Value Interpreter::call_macro(const MacroDef& macro, const Ref<Scope>& closure, const Arguments& arguments) {
  if (++num_calls_ > runtime_.limits().max_depth) fail("the macro calls nest too deeply (limit)");
  runtime_.check_stack();
  const Ref<Scope> scope = new_scope(closure);
  const std::size_t num_parameters = macro.parameters.size();
  std::vector<bool> used(arguments.named.size());
  const auto take_named = [&](std::string_view name) -> const Value* {
    for (std::size_t i = 0; i < arguments.named.size(); ++i) {
      if (!used[i] && arguments.named[i].first.bytes() == name) {
        used[i] = true;
        return &arguments.named[i].second;
      }
    }
    return nullptr;
  };
  for (std::size_t i = 0; i < num_parameters; ++i) {
    const MacroDef::Parameter& parameter = macro.parameters[i];
    const Value* given =
        i < arguments.positional.size() ? &arguments.positional[i] : take_named(parameter.name.bytes());
    if (given != nullptr) {
      scope->set(runtime_, parameter.symbol, *given);
    } else if (parameter.default_value != nullptr) {
      scope->set(runtime_, parameter.symbol, evaluate(*parameter.default_value, scope));
    } else {
      scope->set(
          runtime_, parameter.symbol,
          make_undefined(runtime_, fmt::format("parameter '{}' was not provided", parameter.name.bytes())));
    }
  }
  if (macro.uses_caller) {
    const Value* caller = take_named("caller");
    scope->set(runtime_, ast_.caller_symbol,
               caller != nullptr ? *caller : make_undefined(runtime_, "no caller defined"));
  }
  if (macro.uses_kwargs) {
    const Ref<DictObject> kwargs = new_dict(runtime_);
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) kwargs->set(runtime_, arguments.named[i].first, arguments.named[i].second);
    }
    scope->set(runtime_, ast_.kwargs_symbol, Value(kwargs.get()));
  } else if (const auto left = std::find(used.begin(), used.end(), false); left != used.end()) {
    fail(fmt::format("TypeError: macro '{}' takes no keyword argument '{}'", macro.name,
                     arguments.named[static_cast<std::size_t>(left - used.begin())].first.bytes()));
  }
  if (macro.uses_varargs) {
    std::vector<Value> rest;
    for (std::size_t i = num_parameters; i < arguments.positional.size(); ++i) {
      rest.push_back(arguments.positional[i]);
    }
    scope->set(runtime_, ast_.varargs_symbol, make_tuple(runtime_, std::move(rest)));
  } else if (arguments.positional.size() > num_parameters) {
    fail(fmt::format("TypeError: macro '{}' takes not more than {} argument(s)", macro.name, num_parameters));
  }
  Value result = capture_body(macro.body, scope);
  --num_calls_;
  return result;
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  if (callee.is(Kind::kCallable) && callee.callable().can_call())
    return callee.callable().call(*this, arguments);
  require_defined(callee);
  fail(fmt::format("TypeError: '{}' object is not callable", type_name(callee)));
}

}  // namespace quire::jinja
