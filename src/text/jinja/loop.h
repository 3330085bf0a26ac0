// Purpose: the state behind the variable `loop`. Elements are taken one at a time, as jinja2 does, so that a
// loop's condition sees what the body changed before. Owner: Interpreter::run_for().
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"

namespace quire::jinja {

struct LoopObject : CallableObject {
  explicit LoopObject(Runtime* object_owner) : CallableObject(object_owner) {}

  void advance() { ++next; }
  void close();
  Value call(Interpreter& interpreter, Arguments& arguments) override;
  bool attribute(Interpreter& interpreter, std::string_view name, Value* out) override;
  std::string describe() const override;
  const char* type_name() const override { return "LoopContext"; }

  const ForStmt* stmt = nullptr;  // null after the loop's end
  Ref<Scope> scope;               // outside of the loop
  int depth = 1;
  bool sized = false;         // length is known without running the condition
  std::vector<Value> source;  // before the condition
  std::size_t next_source = 0;
  std::vector<Value> accepted;      // behind the condition
  std::size_t next = 0;             // the element after the current one
  std::vector<Value> last_changed;  // arguments of the last loop.changed()
  bool has_changed = false;

 private:
  std::int64_t index0() const { return static_cast<std::int64_t>(next) - 1; }
  std::int64_t length(Interpreter& interpreter);
};

}  // namespace quire::jinja
