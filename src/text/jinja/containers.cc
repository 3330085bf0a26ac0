// Methods of list, tuple, dict, int and float; methods that would change a value are refused, as in the
// immutable sandbox that Hugging Face renders with.
#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"

namespace quire::jinja {
namespace {

Value list_index(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind_positional<3>("index", {"value", "start", "stop"}, 1);
  const auto length = static_cast<std::int64_t>(self.items().size());
  const auto resolve = [&](const Value* value, std::int64_t otherwise) {
    if (value == nullptr) return otherwise;
    std::int64_t index = index_value(*value, "slice indices");
    if (index < 0) index = index < -length ? 0 : index + length;
    return std::min(index, length);
  };
  const std::int64_t stop = resolve(bound[2], length);
  for (std::int64_t i = resolve(bound[1], 0); i < stop; ++i) {
    in.runtime().step();
    if (equals(in.runtime(), self.items()[static_cast<std::size_t>(i)], *bound[0])) return Value::integer(i);
  }
  fail("ValueError: the value is not in the list");
}

Value list_count(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind_positional<1>("count", {"value"}, 1);
  std::int64_t count = 0;
  for (const Value& item : self.items()) {
    in.runtime().step();
    count += equals(in.runtime(), item, *bound[0]) ? 1 : 0;
  }
  return Value::integer(count);
}

Value copy(Interpreter&, const Value& self, const Arguments& args) {
  args.bind_none("copy");
  return self;  // values never change: a copy cannot be told from its original
}

template <ViewObject::Part part>
Value dict_view(Interpreter& in, const Value& self, const Arguments& args) {
  args.bind_none("dict method");
  return Value(new_object<ViewObject>(in.runtime(), self, part).get());
}

Value dict_get(Interpreter& in, const Value& self, const Arguments& args) {
  const auto bound = args.bind_positional<2>("get", {"key", "default"}, 1);
  if (const Value* found = self.dict().find(in.runtime(), *bound[0])) return *found;
  return bound[1] == nullptr ? Value::none() : *bound[1];
}

Value dict_fromkeys(Interpreter& in, const Value&, const Arguments& args) {
  const auto bound = args.bind_positional<2>("fromkeys", {"iterable", "value"}, 1);
  const Ref<DictObject> dict = new_dict(in.runtime());
  for (Value& key : iterate(in.runtime(), *bound[0])) {
    in.runtime().step();
    dict->set(in.runtime(), std::move(key), bound[1] == nullptr ? Value::none() : *bound[1]);
  }
  return Value(dict.get());
}

Value is_integer(Interpreter&, const Value& self, const Arguments& args) {
  args.bind_none("is_integer");
  return Value::boolean(std::isfinite(self.as_double()) && self.as_double() == std::floor(self.as_double()));
}

Value bit_length(Interpreter&, const Value& self, const Arguments& args) {
  args.bind_none("bit_length");
  const std::int64_t i = self.as_int();
  auto magnitude = i < 0 ? 0 - static_cast<std::uint64_t>(i) : static_cast<std::uint64_t>(i);
  std::int64_t bits = 0;
  for (; magnitude != 0; magnitude >>= 1) ++bits;
  return Value::integer(bits);
}

struct BoundMethodObject : CallableObject {
  BoundMethodObject(Runtime* object_owner, const Method& bound_method, Value bound_self)
      : CallableObject(object_owner), method(bound_method), self(std::move(bound_self)) {}
  Value call(Interpreter& interpreter, Arguments& arguments) override {
    return method.apply(interpreter, self, arguments);
  }
  std::string describe() const override {
    return fmt::format("<built-in method {} of {} object>", method.name, jinja::type_name(self));
  }
  const char* type_name() const override { return "builtin_function_or_method"; }

  const Method method;
  Value self;
};

struct FunctionObject : CallableObject {
  FunctionObject(Runtime* object_owner, const Function& f) : CallableObject(object_owner), function(f) {}
  Value call(Interpreter& interpreter, Arguments& arguments) override {
    return function.apply(interpreter, arguments);
  }
  std::string describe() const override { return fmt::format("<function {}>", function.name); }

  const Function function;
};

const Method* find_in(const std::vector<Method>& methods, std::string_view name) {
  for (const Method& method : methods) {
    if (name == method.name) return &method;
  }
  return nullptr;
}

}  // namespace

Value make_bound_method(Runtime& runtime, const Method& method, const Value& self) {
  return Value(new_object<BoundMethodObject>(runtime, method, self).get());
}

Value make_function(Runtime& runtime, const Function& function) {
  return Value(new_object<FunctionObject>(runtime, function).get());
}

const Method* find_method(const Value& self, std::string_view name) {
  static const std::vector<Method> list_methods = {
      {"index", list_index}, {"count", list_count}, {"copy", copy},       {"append", nullptr},
      {"clear", nullptr},    {"pop", nullptr},      {"reverse", nullptr}, {"insert", nullptr},
      {"sort", nullptr},     {"extend", nullptr},   {"remove", nullptr},
  };
  static const std::vector<Method> tuple_methods = {{"index", list_index}, {"count", list_count}};
  static const std::vector<Method> dict_methods = {
      {"get", dict_get},
      {"items", dict_view<ViewObject::Part::kItems>},
      {"keys", dict_view<ViewObject::Part::kKeys>},
      {"values", dict_view<ViewObject::Part::kValues>},
      {"copy", copy},
      {"fromkeys", dict_fromkeys},
      {"clear", nullptr},
      {"pop", nullptr},
      {"popitem", nullptr},
      {"setdefault", nullptr},
      {"update", nullptr},
  };
  static const std::vector<Method> int_methods = {{"bit_length", bit_length}};
  static const std::vector<Method> float_methods = {{"is_integer", is_integer}};
  switch (self.kind()) {
    case Kind::kString: {
      const Method* method = find_in(string_search_methods(), name);
      return method != nullptr ? method : find_in(string_methods(), name);
    }
    case Kind::kList:
      return find_in(list_methods, name);
    case Kind::kTuple:
      return find_in(tuple_methods, name);
    case Kind::kDict:
      return find_in(dict_methods, name);
    case Kind::kBool:
    case Kind::kInt:
      return find_in(int_methods, name);
    case Kind::kFloat:
      return find_in(float_methods, name);
    default:
      return nullptr;
  }
}

}  // namespace quire::jinja
