// Purpose: the values a template computes with, with Python's behaviour. Values never change after they are
// made (the sandbox forbids it), except namespaces, iterators and loop state.
// In: JSON, template literals. Out: text, truth, comparison. Thread: the values of one render belong to its
// thread; immortal ones (template literals) are shared read-only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/trust_text.h"

namespace quire::jinja {

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,  // dict.keys(), .values(), .items()
  kRange,
  kIterator,  // what Python makes a generator: read once
  kNamespace,
  kCallable,  // functions, macros, bound methods, loop, cycler, joiner
};

struct Object {
  Object(Kind object_kind, Runtime* object_owner) : kind(object_kind), owner(object_owner) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  void retain() {
    if (owner != nullptr) ++references;
  }
  void drop() {
    if (owner != nullptr && --references == 0) owner->destroy(this);
  }

  const Kind kind;
  Runtime* const owner;  // null: immortal, belongs to the parsed template
  std::uint32_t references = 0;
  std::size_t charged = 0;
};

// Owning pointer to an Object.
template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) {
    if (object_ != nullptr) object_->retain();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) object_->drop();
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

struct StringObject;
struct SequenceObject;
struct DictObject;
struct ViewObject;
struct RangeObject;
struct IteratorObject;
struct NamespaceObject;
struct CallableObject;
struct UndefinedObject;

class Value {
 public:
  Value() = default;  // undefined
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b);
  static Value integer(std::int64_t i);
  static Value real(double d);
  explicit Value(Object* object) : kind_(object->kind) {
    bits_.object = object;
    object->retain();
  }
  Value(const Value& other) : kind_(other.kind_), bits_(other.bits_) {
    if (holds_object()) bits_.object->retain();
  }
  Value(Value&& other) noexcept : kind_(other.kind_), bits_(other.bits_) {
    other.kind_ = Kind::kUndefined;
    other.bits_.object = nullptr;
  }
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(bits_, other.bits_);
    return *this;
  }
  ~Value() {
    if (holds_object()) bits_.object->drop();
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  // bool counts as int, as in Python.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  bool as_bool() const { return bits_.integer != 0; }
  std::int64_t as_int() const { return bits_.integer; }  // kInt, kBool
  double as_double() const { return kind_ == Kind::kFloat ? bits_.real : static_cast<double>(bits_.integer); }
  Object* object() const { return holds_object() ? bits_.object : nullptr; }
  const StringObject& string() const;
  const TrustText& text() const;            // kString
  const std::string& bytes() const;         // kString
  const std::vector<Value>& items() const;  // kList, kTuple
  DictObject& dict() const;
  ViewObject& view() const;
  RangeObject& range() const;
  IteratorObject& iterator() const;
  NamespaceObject& ns() const;
  CallableObject& callable() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  bool holds_object() const {
    return kind_ >= Kind::kString || (kind_ == Kind::kUndefined && bits_.object != nullptr);
  }

  Kind kind_ = Kind::kUndefined;
  union {
    std::int64_t integer;
    double real;
    Object* object = nullptr;
  } bits_;
};

struct UndefinedObject : Object {
  UndefinedObject(Runtime* object_owner, std::string text)
      : Object(Kind::kUndefined, object_owner), message(std::move(text)) {}
  std::string message;  // what to say when it is used
};

struct StringObject : Object {
  StringObject(Runtime* object_owner, TrustText string_text, bool is_markup);
  TrustText text;
  std::size_t num_chars;
  bool markup;  // marked safe: + and % escape what is joined to it, as markupsafe does
  bool ascii() const { return num_chars == text.size(); }
};

struct SequenceObject : Object {
  using Object::Object;
  std::vector<Value> items;
  bool is_group = false;  // a pair made by groupby: has .grouper and .list
};

// Insertion-ordered; keys compare as in Python (1 == 1.0 == True).
struct DictObject : Object {
  explicit DictObject(Runtime* object_owner) : Object(Kind::kDict, object_owner) {}
  const Value* find(std::string_view key) const;
  const Value* find(Runtime& runtime, const Value& key) const;  // fails on unhashable keys
  void set(Runtime& runtime, Value key, Value value);

  std::vector<std::pair<Value, Value>> entries;

 private:
  static constexpr std::size_t kIndexFrom = 12;  // below this a scan is faster than hashing
  std::unordered_multimap<std::size_t, std::size_t> index_;
};

struct ViewObject : Object {
  enum class Part : std::uint8_t { kKeys, kValues, kItems };
  ViewObject(Runtime* object_owner, Value source, Part which)
      : Object(Kind::kView, object_owner), dict(std::move(source)), part(which) {}
  Value dict;
  Part part;
};

struct RangeObject : Object {
  RangeObject(Runtime* object_owner, std::int64_t from, std::int64_t to, std::int64_t by, std::int64_t count)
      : Object(Kind::kRange, object_owner), start(from), stop(to), step(by), length(count) {}
  std::int64_t start, stop, step, length;
  Value at(std::int64_t i) const { return Value::integer(start + i * step); }
};

struct IteratorObject : Object {
  explicit IteratorObject(Runtime* object_owner) : Object(Kind::kIterator, object_owner) {}
  std::vector<Value> items;
  std::size_t next = 0;
};

struct NamespaceObject : Object {
  explicit NamespaceObject(Runtime* object_owner) : Object(Kind::kNamespace, object_owner) {}
  Ref<DictObject> attributes;
};

class Interpreter;
struct Arguments;

struct CallableObject : Object {
  explicit CallableObject(Runtime* object_owner) : Object(Kind::kCallable, object_owner) {}
  virtual Value call(Interpreter& interpreter, Arguments& arguments) = 0;
  // What `object.name` gives; null if there is no such attribute.
  virtual bool attribute(Interpreter& interpreter, std::string_view name, Value* out);
  virtual std::string describe() const = 0;
  // loop is iterable in jinja2, a macro is not; nothing here needs more than this.
  virtual const char* type_name() const { return "function"; }
  virtual bool can_call() const { return true; }
};

// --- making values ---
Value make_string(Runtime& runtime, TrustText text, bool markup = false);
Value make_string(Runtime& runtime, std::string_view bytes, bool trusted = true);
Value make_list(Runtime& runtime, std::vector<Value> items);
Value make_tuple(Runtime& runtime, std::vector<Value> items);
Value make_group(Runtime& runtime, Value grouper, Value list);
Value make_iterator(Runtime& runtime, std::vector<Value> items);
Value make_range(Runtime& runtime, std::int64_t start, std::int64_t stop, std::int64_t step);
Ref<DictObject> new_dict(Runtime& runtime);
Value make_undefined(Runtime& runtime, std::string message);
// Fails with the value's own message.
[[noreturn]] void fail_undefined(const Value& value);
void require_defined(const Value& value);

template <typename T, typename... Args>
Ref<T> new_object(Runtime& runtime, Args&&... args) {
  Ref<T> object(new T(&runtime, std::forward<Args>(args)...));
  object->charged = sizeof(T);
  runtime.charge(sizeof(T));
  return object;
}

// --- what Python says about a value ---
const char* type_name(const Value& value);               // "str", "NoneType", ...
std::string describe_for_attribute(const Value& value);  // "'dict object'", "'None'": jinja2's wording
bool truthy(const Value& value);
bool is_hashable(const Value& value);
std::size_t hash_value(Runtime& runtime, const Value& value);  // fails on unhashable values
bool equals(Runtime& runtime, const Value& a, const Value& b);
// a < b as Python orders them; fails on types without an order. symbol is for the message.
bool less(Runtime& runtime, const Value& a, const Value& b, const char* symbol = "<");
bool contains(Runtime& runtime, const Value& container, const Value& item);
// Length as len() gives it; fails if there is none.
std::int64_t length_of(Runtime& runtime, const Value& value);
bool has_length(const Value& value);
bool is_iterable(const Value& value);
// The elements one iteration gives (consumes an iterator); fails if value is not iterable.
std::vector<Value> iterate(Runtime& runtime, const Value& value);
std::int64_t index_value(const Value& value, const char* what);  // an int or bool; fails otherwise

// --- text.cc: str() and repr() ---
TrustText to_text(Runtime& runtime, const Value& value);
void append_str(Runtime& runtime, TrustText& out, const Value& value);
void append_repr(Runtime& runtime, TrustText& out, const Value& value);
std::string float_repr(double d);

// --- attribute and item lookup, with jinja2's fallbacks (lookup.cc) ---
Value get_attribute(Interpreter& interpreter, const Value& object, const Value& name);
// Without the fallback to items.
Value get_plain_attribute(Interpreter& interpreter, const Value& object, const Value& name);
Value get_item(Interpreter& interpreter, const Value& object, const Value& key);
Value get_slice(Interpreter& interpreter, const Value& object, const Value& start, const Value& stop,
                const Value& step);

}  // namespace quire::jinja
