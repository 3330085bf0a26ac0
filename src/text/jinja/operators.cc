// Arithmetic as in Python, with 64-bit integers: an overflow is an error.
#include <cmath>

#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"

namespace quire::jinja {
namespace {

const char* symbol_of(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "+";
    case BinaryOp::kSubtract:
      return "-";
    case BinaryOp::kMultiply:
      return "*";
    case BinaryOp::kDivide:
      return "/";
    case BinaryOp::kFloorDivide:
      return "//";
    case BinaryOp::kModulo:
      return "%";
    case BinaryOp::kPower:
      return "**";
  }
  return "?";
}

[[noreturn]] void fail_types(BinaryOp op, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  fail(fmt::format("TypeError: unsupported operand type(s) for {}: '{}' and '{}'", symbol_of(op),
                   type_name(a), type_name(b)));
}

[[noreturn]] void fail_overflow() {
  fail("OverflowError: an integer does not fit 64 bits");
}

Value add_strings(Runtime& runtime, const Value& a, const Value& b) {
  runtime.check_text_bytes(a.text().size() + b.text().size());
  const bool markup = a.string().markup || b.string().markup;
  const auto part = [&](const Value& v) {
    return markup && !v.string().markup ? escape_html(runtime, v.text()) : v.text();
  };
  TrustText out = part(a);
  out.append(part(b));
  return make_string(runtime, std::move(out), markup);
}

Value repeat_string(Runtime& runtime, const Value& text, std::int64_t count) {
  if (count <= 0 || text.text().empty()) return make_string(runtime, TrustText(), text.string().markup);
  const std::size_t size = text.text().size();
  if (static_cast<std::uint64_t>(count) > runtime.limits().max_output_bytes / size) {
    runtime.check_text_bytes(runtime.limits().max_output_bytes + 1);
  }
  TrustText out;
  out.reserve(size * static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) out.append(text.text());
  return make_string(runtime, std::move(out), text.string().markup);
}

Value repeat_sequence(Runtime& runtime, const Value& sequence, std::int64_t count) {
  const auto& items = sequence.items();
  std::vector<Value> out;
  if (count > 0 && !items.empty()) {
    if (static_cast<std::uint64_t>(count) >
        runtime.limits().max_memory_bytes / sizeof(Value) / items.size()) {
      runtime.check_memory(runtime.limits().max_memory_bytes + 1);
    }
    runtime.check_memory(items.size() * static_cast<std::size_t>(count) * sizeof(Value));
    out.reserve(items.size() * static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      runtime.work(items.size() * sizeof(Value));
      out.insert(out.end(), items.begin(), items.end());
    }
  }
  return sequence.is(Kind::kTuple) ? make_tuple(runtime, std::move(out)) : make_list(runtime, std::move(out));
}

Value multiply(Interpreter& interpreter, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(a.as_int(), b.as_int(), &product)) fail_overflow();
    return Value::integer(product);
  }
  if (a.is_number() && b.is_number()) return Value::real(a.as_double() * b.as_double());
  const Value& sequence = a.is_integral() ? b : a;
  const Value& count = a.is_integral() ? a : b;
  if (count.is_integral()) {
    if (sequence.is_string()) return repeat_string(interpreter.runtime(), sequence, count.as_int());
    if (sequence.is_sequence()) return repeat_sequence(interpreter.runtime(), sequence, count.as_int());
  }
  fail_types(BinaryOp::kMultiply, a, b);
}

// The remainder has the divisor's sign.
double float_modulo(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) remainder += b;
  } else {
    remainder = std::copysign(0.0, b);
  }
  return remainder;
}

double float_floor_divide(double a, double b) {
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1.0;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1.0 : floor;
}

Value divide(BinaryOp op, const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) fail_types(op, a, b);
  if (b.as_double() == 0) fail("ZeroDivisionError: division by zero");
  if (op == BinaryOp::kDivide) return Value::real(a.as_double() / b.as_double());
  if (a.is_integral() && b.is_integral()) {
    const std::int64_t x = a.as_int();
    const std::int64_t y = b.as_int();
    if (y == -1) {  // the one quotient that may overflow, and the one remainder that traps
      if (op == BinaryOp::kModulo) return Value::integer(0);
      if (x == INT64_MIN) fail_overflow();
      return Value::integer(-x);
    }
    std::int64_t quotient = x / y;
    std::int64_t remainder = x % y;
    if (remainder != 0 && (remainder < 0) != (y < 0)) {
      --quotient;
      remainder += y;
    }
    return Value::integer(op == BinaryOp::kModulo ? remainder : quotient);
  }
  return Value::real(op == BinaryOp::kModulo ? float_modulo(a.as_double(), b.as_double())
                                             : float_floor_divide(a.as_double(), b.as_double()));
}

Value power(const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) fail_types(BinaryOp::kPower, a, b);
  if (a.is_integral() && b.is_integral() && b.as_int() >= 0) {
    std::int64_t result = 1;
    std::int64_t base = a.as_int();
    std::uint64_t exponent = static_cast<std::uint64_t>(b.as_int());
    if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
    if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
    if (exponent > 63) fail_overflow();
    while (exponent-- > 0) {
      if (__builtin_mul_overflow(result, base, &result)) fail_overflow();
    }
    return Value::integer(result);
  }
  const double x = a.as_double();
  const double y = b.as_double();
  if (x == 0 && y < 0) fail("ZeroDivisionError: 0.0 cannot be raised to a negative power");
  if (x < 0 && std::isfinite(x) && std::isfinite(y) && y != std::floor(y)) {
    fail("a negative number to a fractional power is a complex number: not supported");
  }
  const double result = std::pow(x, y);
  if (std::isinf(result) && std::isfinite(x) && std::isfinite(y))
    fail("OverflowError: the result is too large");
  return Value::real(result);
}

}  // namespace

Value negate(const Value& value) {
  if (value.is_integral()) {
    if (value.as_int() == INT64_MIN) fail_overflow();
    return Value::integer(-value.as_int());
  }
  if (value.is(Kind::kFloat)) return Value::real(-value.as_double());
  require_defined(value);
  fail(fmt::format("TypeError: bad operand type for unary -: '{}'", type_name(value)));
}

Value add_values(Interpreter& interpreter, const Value& a, const Value& b) {
  Runtime& runtime = interpreter.runtime();
  if (a.is_string() && b.is_string()) return add_strings(runtime, a, b);
  if (a.is_integral() && b.is_integral()) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(a.as_int(), b.as_int(), &sum)) fail_overflow();
    return Value::integer(sum);
  }
  if (a.is_number() && b.is_number()) return Value::real(a.as_double() + b.as_double());
  if (a.is_sequence() && a.kind() == b.kind()) {
    const std::size_t count = a.items().size() + b.items().size();
    runtime.check_memory(count * sizeof(Value));
    runtime.work(count * sizeof(Value));
    std::vector<Value> items;
    items.reserve(count);
    items.insert(items.end(), a.items().begin(), a.items().end());
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(Kind::kTuple) ? make_tuple(runtime, std::move(items)) : make_list(runtime, std::move(items));
  }
  if (a.is_string() && !b.is_undefined()) {
    fail(fmt::format("TypeError: can only concatenate str (not \"{}\") to str", type_name(b)));
  }
  fail_types(BinaryOp::kAdd, a, b);
}

Value arithmetic(Interpreter& interpreter, BinaryOp op, const Value& a, const Value& b) {
  switch (op) {
    case BinaryOp::kAdd:
      return add_values(interpreter, a, b);
    case BinaryOp::kSubtract: {
      if (a.is_integral() && b.is_integral()) {
        std::int64_t difference = 0;
        if (__builtin_sub_overflow(a.as_int(), b.as_int(), &difference)) fail_overflow();
        return Value::integer(difference);
      }
      if (a.is_number() && b.is_number()) return Value::real(a.as_double() - b.as_double());
      fail_types(op, a, b);
    }
    case BinaryOp::kMultiply:
      return multiply(interpreter, a, b);
    case BinaryOp::kModulo:
      if (a.is_string()) {
        return make_string(interpreter.runtime(), format_percent(interpreter, a, b), a.string().markup);
      }
      return divide(op, a, b);
    case BinaryOp::kDivide:
    case BinaryOp::kFloorDivide:
      return divide(op, a, b);
    case BinaryOp::kPower:
      return power(a, b);
  }
  return Value();
}

}  // namespace quire::jinja
