#include "text/jinja/loop.h"

#include <fmt/core.h>

#include "text/jinja/filters.h"

namespace quire::jinja {
namespace {

LoopObject& self_loop(const Value& self) {
  return static_cast<LoopObject&>(self.callable());
}

Value loop_cycle(Interpreter&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("TypeError: no items for cycling given");
  const std::size_t at = self_loop(self).next == 0 ? 0 : self_loop(self).next - 1;
  return arguments.positional[at % arguments.positional.size()];
}

Value loop_changed(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  LoopObject& loop = self_loop(self);
  bool same = loop.has_changed && loop.last_changed.size() == arguments.positional.size();
  for (std::size_t i = 0; same && i < arguments.positional.size(); ++i) {
    same = equals(interpreter.runtime(), loop.last_changed[i], arguments.positional[i]);
  }
  if (!same && loop.stmt != nullptr) {  // a finished loop keeps nothing: it could hold itself
    loop.has_changed = true;
    loop.last_changed = arguments.positional;
  }
  return Value::boolean(!same);
}

constexpr Method kCycle{"cycle", loop_cycle};
constexpr Method kChanged{"changed", loop_changed};

}  // namespace

void LoopObject::close() {
  stmt = nullptr;
  scope = Ref<Scope>();
  source.clear();
  accepted.clear();
  last_changed.clear();
}

Value LoopObject::call(Interpreter& interpreter, Arguments& arguments) {
  const auto bound = arguments.bind<1>("loop", {"iterable"}, 1);
  return interpreter.run_recursive_loop(*this, *bound[0]);
}

std::int64_t LoopObject::length(Interpreter& interpreter) {
  if (stmt == nullptr) return 0;
  if (sized) return static_cast<std::int64_t>(source.size());
  const std::size_t current = next;
  next = accepted.size();
  while (interpreter.loop_peek(*this)) next = accepted.size();
  next = current;
  return static_cast<std::int64_t>(accepted.size());
}

bool LoopObject::attribute(Interpreter& interpreter, std::string_view name, Value* out) {
  Runtime& runtime = interpreter.runtime();
  if (name == "index") {
    *out = Value::integer(index0() + 1);
  } else if (name == "index0") {
    *out = Value::integer(index0());
  } else if (name == "revindex") {
    *out = Value::integer(length(interpreter) - index0());
  } else if (name == "revindex0") {
    *out = Value::integer(length(interpreter) - index0() - 1);
  } else if (name == "first") {
    *out = Value::boolean(index0() == 0);
  } else if (name == "last") {
    *out = Value::boolean(!interpreter.loop_peek(*this));
  } else if (name == "length") {
    *out = Value::integer(length(interpreter));
  } else if (name == "depth") {
    *out = Value::integer(depth);
  } else if (name == "depth0") {
    *out = Value::integer(depth - 1);
  } else if (name == "previtem") {
    *out = next >= 2 && next - 2 < accepted.size() ? accepted[next - 2]
                                                   : make_undefined(runtime, "there is no previous item");
  } else if (name == "nextitem") {
    *out = interpreter.loop_peek(*this) ? accepted[next] : make_undefined(runtime, "there is no next item");
  } else if (name == "cycle") {
    *out = make_bound_method(runtime, kCycle, Value(this));
  } else if (name == "changed") {
    *out = make_bound_method(runtime, kChanged, Value(this));
  } else {
    return false;
  }
  return true;
}

std::string LoopObject::describe() const {
  return fmt::format("<LoopContext {}>", next);
}

}  // namespace quire::jinja
