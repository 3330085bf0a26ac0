// Expressions.
#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"

namespace quire::jinja {

Value Interpreter::evaluate(const Expr& expr, const Ref<Scope>& scope) {
  runtime_.step();
  runtime_.check_stack();
  switch (expr.kind) {
    case ExprKind::kConst:
      return static_cast<const ConstExpr&>(expr).value;
    case ExprKind::kName:
      return evaluate_name(static_cast<const NameExpr&>(expr).symbol, scope);
    case ExprKind::kTuple:
      return evaluate_items(static_cast<const TupleExpr&>(expr).items, scope, true);
    case ExprKind::kList:
      return evaluate_items(static_cast<const ListExpr&>(expr).items, scope, false);
    case ExprKind::kDict:
      return evaluate_dict(static_cast<const DictExpr&>(expr), scope);
    case ExprKind::kUnary:
      return evaluate_unary(static_cast<const UnaryExpr&>(expr), scope);
    case ExprKind::kBinary:
      return evaluate_binary(static_cast<const BinaryExpr&>(expr), scope);
    case ExprKind::kNot:
      return Value::boolean(!truthy(evaluate(*static_cast<const NotExpr&>(expr).operand, scope)));
    case ExprKind::kAnd: {
      const auto& pair = static_cast<const AndExpr&>(expr);
      Value left = evaluate(*pair.left, scope);
      return truthy(left) ? evaluate(*pair.right, scope) : left;
    }
    case ExprKind::kOr: {
      const auto& pair = static_cast<const OrExpr&>(expr);
      Value left = evaluate(*pair.left, scope);
      return truthy(left) ? left : evaluate(*pair.right, scope);
    }
    case ExprKind::kCompare:
      return evaluate_compare(static_cast<const CompareExpr&>(expr), scope);
    case ExprKind::kConcat:
      return evaluate_concat(static_cast<const ConcatExpr&>(expr), scope);
    case ExprKind::kCondition:
      return evaluate_condition(static_cast<const ConditionExpr&>(expr), scope);
    case ExprKind::kAttribute: {
      const auto& attribute = static_cast<const AttributeExpr&>(expr);
      const Value object = evaluate(*attribute.object, scope);
      line_ = expr.line;
      return get_attribute(*this, object, attribute.name);
    }
    case ExprKind::kItem: {
      const auto& item = static_cast<const ItemExpr&>(expr);
      const Value object = evaluate(*item.object, scope);
      const Value key = evaluate(*item.key, scope);
      line_ = expr.line;
      return get_item(*this, object, key);
    }
    case ExprKind::kSlice:
      return evaluate_slice(static_cast<const SliceExpr&>(expr), scope);
    case ExprKind::kCall:
      return evaluate_call(static_cast<const CallExpr&>(expr), scope, nullptr);
    case ExprKind::kFilter:
      return evaluate_filter(static_cast<const FilterExpr&>(expr), scope);
    case ExprKind::kTest:
      return evaluate_test(static_cast<const TestExpr&>(expr), scope);
  }
  return Value();
}

Value Interpreter::evaluate_name(Symbol symbol, const Ref<Scope>& scope) {
  for (Scope* s = scope.get(); s != nullptr; s = s->parent.get()) {
    if (const Value* value = s->find(symbol)) return *value;
  }
  const auto i = static_cast<std::size_t>(symbol);
  if (is_global_[i]) return globals_[i];
  return make_undefined(runtime_, fmt::format("'{}' is undefined", ast_.symbols[i]));
}

Value Interpreter::evaluate_items(const std::vector<ExprPtr>& items, const Ref<Scope>& scope, bool tuple) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const auto& item : items) values.push_back(evaluate(*item, scope));
  return tuple ? make_tuple(runtime_, std::move(values)) : make_list(runtime_, std::move(values));
}

Value Interpreter::evaluate_dict(const DictExpr& expr, const Ref<Scope>& scope) {
  const Ref<DictObject> dict = new_dict(runtime_);
  for (const auto& [key, value] : expr.entries) {
    Value k = evaluate(*key, scope);
    dict->set(runtime_, std::move(k), evaluate(*value, scope));
  }
  return Value(dict.get());
}

Value Interpreter::evaluate_unary(const UnaryExpr& expr, const Ref<Scope>& scope) {
  const Value operand = evaluate(*expr.operand, scope);
  line_ = expr.line;
  if (expr.op == UnaryOp::kNegative) return negate(operand);
  if (operand.is(Kind::kFloat)) return operand;
  if (operand.is_integral()) return Value::integer(operand.as_int());
  require_defined(operand);
  fail(fmt::format("TypeError: bad operand type for unary +: '{}'", type_name(operand)));
}

Value Interpreter::evaluate_binary(const BinaryExpr& expr, const Ref<Scope>& scope) {
  const Value left = evaluate(*expr.left, scope);
  const Value right = evaluate(*expr.right, scope);
  line_ = expr.line;
  if (expr.op == BinaryOp::kAdd) return add_values(*this, left, right);
  return arithmetic(*this, expr.op, left, right);
}

Value Interpreter::evaluate_compare(const CompareExpr& expr, const Ref<Scope>& scope) {
  Value left = evaluate(*expr.first, scope);
  for (const auto& [op, operand] : expr.rest) {
    Value right = evaluate(*operand, scope);
    line_ = expr.line;
    if (!compare(op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

bool Interpreter::compare(CompareOp op, const Value& a, const Value& b) {
  const bool numbers = a.is_number() && b.is_number();
  switch (op) {
    case CompareOp::kEq:
      return equals(runtime_, a, b);
    case CompareOp::kNe:
      return !equals(runtime_, a, b);
    case CompareOp::kLt:
      return less(runtime_, a, b);
    case CompareOp::kGt:
      return less(runtime_, b, a, ">");
    case CompareOp::kLe:  // written so that NaN compares false
      return numbers ? less(runtime_, a, b) || equals(runtime_, a, b) : !less(runtime_, b, a, "<=");
    case CompareOp::kGe:
      return numbers ? less(runtime_, b, a) || equals(runtime_, a, b) : !less(runtime_, a, b, ">=");
    case CompareOp::kIn:
      return contains(runtime_, b, a);
    case CompareOp::kNotIn:
      return !contains(runtime_, b, a);
  }
  return false;
}

Value Interpreter::evaluate_concat(const ConcatExpr& expr, const Ref<Scope>& scope) {
  TrustText out;
  for (const auto& item : expr.items) append_str(runtime_, out, evaluate(*item, scope));
  return make_string(runtime_, std::move(out));
}

Value Interpreter::evaluate_condition(const ConditionExpr& expr, const Ref<Scope>& scope) {
  if (truthy(evaluate(*expr.condition, scope))) return evaluate(*expr.then, scope);
  if (expr.otherwise != nullptr) return evaluate(*expr.otherwise, scope);
  return make_undefined(runtime_,
                        fmt::format("the inline if on line {} is false and has no else", expr.line));
}

Value Interpreter::evaluate_slice(const SliceExpr& expr, const Ref<Scope>& scope) {
  const Value object = evaluate(*expr.object, scope);
  const auto bound = [&](const ExprPtr& part) {
    return part == nullptr ? Value::none() : evaluate(*part, scope);
  };
  const Value start = bound(expr.start);
  const Value stop = bound(expr.stop);
  const Value step = bound(expr.step);
  line_ = expr.line;
  return get_slice(*this, object, start, stop, step);
}

void Interpreter::evaluate_arguments(const CallArgs& args, const Ref<Scope>& scope, Arguments& out) {
  out.positional.reserve(args.positional.size());
  for (const auto& arg : args.positional) out.positional.push_back(evaluate(*arg, scope));
  for (const auto& [name, arg] : args.named) out.named.emplace_back(name, evaluate(*arg, scope));
  if (args.star != nullptr) {
    const Value rest = evaluate(*args.star, scope);
    if (!is_iterable(rest))
      fail(fmt::format("TypeError: argument after * must be an iterable, not {}", type_name(rest)));
    for (Value& item : iterate(runtime_, rest)) out.positional.push_back(std::move(item));
  }
  if (args.double_star != nullptr) {
    const Value rest = evaluate(*args.double_star, scope);
    require_defined(rest);
    if (!rest.is(Kind::kDict)) {
      fail(fmt::format("TypeError: argument after ** must be a mapping, not {}", type_name(rest)));
    }
    for (const auto& [key, value] : rest.dict().entries) {
      if (!key.is_string()) fail("TypeError: keywords must be strings");
      for (const auto& other : out.named) {
        if (other.first.bytes() == key.bytes()) {
          fail(fmt::format("TypeError: got multiple values for keyword argument '{}'", key.bytes()));
        }
      }
      out.named.emplace_back(key, value);
    }
  }
}

Value Interpreter::evaluate_call(const CallExpr& expr, const Ref<Scope>& scope, const Value* caller) {
  Arguments arguments;
  if (expr.callee->kind == ExprKind::kAttribute && caller == nullptr) {
    // The usual x.strip(): without making a bound method first.
    const auto& attribute = static_cast<const AttributeExpr&>(*expr.callee);
    const Value object = evaluate(*attribute.object, scope);
    const Method* method = find_method(object, attribute.name.bytes());
    if (method != nullptr && method->apply != nullptr) {
      evaluate_arguments(expr.args, scope, arguments);
      line_ = expr.line;
      return method->apply(*this, object, arguments);
    }
    line_ = expr.line;
    const Value callee = get_attribute(*this, object, attribute.name);
    evaluate_arguments(expr.args, scope, arguments);
    line_ = expr.line;
    return call(callee, arguments);
  }
  const Value callee = evaluate(*expr.callee, scope);
  evaluate_arguments(expr.args, scope, arguments);
  if (caller != nullptr) {
    arguments.named.emplace_back(make_string(runtime_, "caller"), *caller);
  }
  line_ = expr.line;
  return call(callee, arguments);
}

Value Interpreter::evaluate_filter(const FilterExpr& expr, const Ref<Scope>& scope) {
  const Value input = evaluate(*expr.operand, scope);
  Arguments arguments;
  evaluate_arguments(expr.call.args, scope, arguments);
  line_ = expr.line;
  if (expr.call.filter == nullptr) fail(fmt::format("no filter named '{}'", expr.call.name));
  return expr.call.filter->apply(*this, input, arguments);
}

Value Interpreter::apply_filters(const std::vector<FilterCall>& calls, Value input, const Ref<Scope>& scope) {
  for (const FilterCall& filter_call : calls) {
    Arguments arguments;
    evaluate_arguments(filter_call.args, scope, arguments);
    line_ = filter_call.line;
    if (filter_call.filter == nullptr) fail(fmt::format("no filter named '{}'", filter_call.name));
    input = filter_call.filter->apply(*this, input, arguments);
  }
  return input;
}

Value Interpreter::evaluate_test(const TestExpr& expr, const Ref<Scope>& scope) {
  const Value input = evaluate(*expr.operand, scope);
  Arguments arguments;
  evaluate_arguments(expr.args, scope, arguments);
  line_ = expr.line;
  if (expr.test == nullptr) fail(fmt::format("no test named '{}'", expr.name));
  return Value::boolean(expr.test->apply(*this, input, arguments));
}

}  // namespace quire::jinja
