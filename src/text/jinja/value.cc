#include "text/jinja/value.h"

#include <cmath>
#include <functional>
#include <utility>

#include <fmt/core.h>

#include "text/jinja/unicode.h"

namespace quire::jinja {

Value Value::boolean(bool b) {
  Value value(Kind::kBool);
  value.bits_.integer = b ? 1 : 0;
  return value;
}
Value Value::integer(std::int64_t i) {
  Value value(Kind::kInt);
  value.bits_.integer = i;
  return value;
}
Value Value::real(double d) {
  Value value(Kind::kFloat);
  value.bits_.real = d;
  return value;
}

const StringObject& Value::string() const {
  return static_cast<const StringObject&>(*bits_.object);
}
const TrustText& Value::text() const {
  return string().text;
}
const std::string& Value::bytes() const {
  return string().text.bytes();
}
const std::vector<Value>& Value::items() const {
  return static_cast<SequenceObject&>(*bits_.object).items;
}
DictObject& Value::dict() const {
  return static_cast<DictObject&>(*bits_.object);
}
ViewObject& Value::view() const {
  return static_cast<ViewObject&>(*bits_.object);
}
RangeObject& Value::range() const {
  return static_cast<RangeObject&>(*bits_.object);
}
IteratorObject& Value::iterator() const {
  return static_cast<IteratorObject&>(*bits_.object);
}
NamespaceObject& Value::ns() const {
  return static_cast<NamespaceObject&>(*bits_.object);
}
CallableObject& Value::callable() const {
  return static_cast<CallableObject&>(*bits_.object);
}

StringObject::StringObject(Runtime* object_owner, TrustText string_text, bool is_markup)
    : Object(Kind::kString, object_owner),
      text(std::move(string_text)),
      num_chars(count_code_points(text.view())),
      markup(is_markup) {}

bool CallableObject::attribute(Interpreter&, std::string_view, Value*) {
  return false;
}

Value make_string(Runtime& runtime, TrustText text, bool markup) {
  runtime.check_text_bytes(text.size());
  runtime.work(text.size());
  const std::size_t extra = text.heap_bytes();
  Ref<StringObject> object = new_object<StringObject>(runtime, std::move(text), markup);
  object->charged += extra;
  runtime.charge(extra);
  return Value(object.get());
}

Value make_string(Runtime& runtime, std::string_view bytes, bool trusted) {
  return make_string(runtime, TrustText(std::string(bytes), trusted));
}

namespace {

template <typename T>
Value adopt_items(Runtime& runtime, Ref<T> object, std::vector<Value> items) {
  const std::size_t extra = items.capacity() * sizeof(Value);
  runtime.work(extra);
  object->items = std::move(items);
  object->charged += extra;
  runtime.charge(extra);
  return Value(object.get());
}

Value make_sequence(Runtime& runtime, Kind kind, std::vector<Value> items) {
  Ref<SequenceObject> object(new SequenceObject(kind, &runtime));
  object->charged = sizeof(SequenceObject);
  runtime.charge(sizeof(SequenceObject));
  return adopt_items(runtime, std::move(object), std::move(items));
}

// A float that equals an integer must hash like it.
bool exact_int(double d, std::int64_t* out) {
  if (!(d >= -9223372036854775808.0 && d < 9223372036854775808.0) || d != std::floor(d)) return false;
  *out = static_cast<std::int64_t>(d);
  return true;
}

bool is_text_key(const Value& key, std::string_view text) {
  return key.is_string() && key.bytes() == text;
}

// -1, 0, 1, or 2 for unordered (NaN). Exact also where int64 does not fit a double.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.as_int() < b.as_int() ? -1 : (a.as_int() > b.as_int() ? 1 : 0);
  }
  const auto x =
      static_cast<long double>(a.is_integral() ? static_cast<long double>(a.as_int()) : a.as_double());
  const auto y =
      static_cast<long double>(b.is_integral() ? static_cast<long double>(b.as_int()) : b.as_double());
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : (x > y ? 1 : 0);
}

}  // namespace

Value make_list(Runtime& runtime, std::vector<Value> items) {
  return make_sequence(runtime, Kind::kList, std::move(items));
}
Value make_tuple(Runtime& runtime, std::vector<Value> items) {
  return make_sequence(runtime, Kind::kTuple, std::move(items));
}
Value make_group(Runtime& runtime, Value grouper, Value list) {
  Value pair = make_tuple(runtime, {std::move(grouper), std::move(list)});
  static_cast<SequenceObject*>(pair.object())->is_group = true;
  return pair;
}
Value make_iterator(Runtime& runtime, std::vector<Value> items) {
  return adopt_items(runtime, new_object<IteratorObject>(runtime), std::move(items));
}

Value make_range(Runtime& runtime, std::int64_t start, std::int64_t stop, std::int64_t step) {
  constexpr std::int64_t kMaxRange = 100'000;  // what jinja2's sandbox allows
  if (step == 0) fail("range() arg 3 must not be zero");
  // In unsigned arithmetic, which has room for every difference.
  const auto distance = [](std::int64_t from, std::int64_t to) {
    return static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
  };
  std::uint64_t length = 0;
  if (step > 0 && start < stop) {
    length = (distance(start, stop) - 1) / static_cast<std::uint64_t>(step) + 1;
  } else if (step < 0 && start > stop) {
    length = (distance(stop, start) - 1) / (0 - static_cast<std::uint64_t>(step)) + 1;
  }
  if (length > static_cast<std::uint64_t>(kMaxRange)) {
    fail(fmt::format("range too big: at most {} elements are allowed", kMaxRange));
  }
  return Value(new_object<RangeObject>(runtime, start, stop, step, static_cast<std::int64_t>(length)).get());
}

Ref<DictObject> new_dict(Runtime& runtime) {
  return new_object<DictObject>(runtime);
}

Value make_undefined(Runtime& runtime, std::string message) {
  return Value(new_object<UndefinedObject>(runtime, std::move(message)).get());
}

void fail_undefined(const Value& value) {
  const Object* object = value.object();
  fail(object == nullptr ? std::string("an undefined value is used")
                         : static_cast<const UndefinedObject*>(object)->message);
}

void require_defined(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
}

const Value* DictObject::find(std::string_view key) const {
  if (entries.size() < kIndexFrom) {
    for (const auto& entry : entries) {
      if (is_text_key(entry.first, key)) return &entry.second;
    }
    return nullptr;
  }
  auto [at, end] = index_.equal_range(std::hash<std::string_view>{}(key));
  for (; at != end; ++at) {
    const auto& entry = entries[at->second];
    if (is_text_key(entry.first, key)) return &entry.second;
  }
  return nullptr;
}

const Value* DictObject::find(Runtime& runtime, const Value& key) const {
  if (key.is_string()) return find(key.bytes());
  const std::size_t hash = hash_value(runtime, key);
  if (entries.size() < kIndexFrom) {
    for (const auto& entry : entries) {
      if (equals(runtime, entry.first, key)) return &entry.second;
    }
    return nullptr;
  }
  auto [at, end] = index_.equal_range(hash);
  for (; at != end; ++at) {
    const auto& entry = entries[at->second];
    if (equals(runtime, entry.first, key)) return &entry.second;
  }
  return nullptr;
}

void DictObject::set(Runtime& runtime, Value key, Value value) {
  const std::size_t hash = hash_value(runtime, key);
  if (const Value* present = find(runtime, key)) {
    *const_cast<Value*>(present) = std::move(value);
    return;
  }
  constexpr std::size_t kEntryBytes = 2 * sizeof(Value) + 40;  // and its place in the index
  runtime.charge(kEntryBytes);
  charged += kEntryBytes;
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() < kIndexFrom) return;
  if (index_.empty()) {
    for (std::size_t i = 0; i + 1 < entries.size(); ++i) {
      index_.emplace(hash_value(runtime, entries[i].first), i);
    }
  }
  index_.emplace(hash, entries.size() - 1);
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.string().markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
      return value.view().part == ViewObject::Part::kKeys     ? "dict_keys"
             : value.view().part == ViewObject::Part::kValues ? "dict_values"
                                                              : "dict_items";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kCallable:
      return value.callable().type_name();
  }
  return "object";
}

std::string describe_for_attribute(const Value& value) {
  if (value.is_none()) return "'None'";
  return fmt::format("'{} object'", type_name(value));
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    case Kind::kView:
      return !value.view().dict.dict().entries.empty();
    case Kind::kRange:
      return value.range().length > 0;
    default:
      return true;
  }
}

bool is_hashable(const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kDict:
      return false;
    case Kind::kView:
      return value.view().part == ViewObject::Part::kValues;
    case Kind::kTuple:
      for (const Value& item : value.items()) {
        if (!is_hashable(item)) return false;
      }
      return true;
    default:
      return true;
  }
}

std::size_t hash_value(Runtime& runtime, const Value& value) {
  runtime.check_stack();
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return static_cast<std::size_t>(value.kind()) + 17;
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<std::int64_t>{}(value.as_int());
    case Kind::kFloat: {
      std::int64_t exact = 0;
      if (exact_int(value.as_double(), &exact)) return std::hash<std::int64_t>{}(exact);
      return std::hash<double>{}(value.as_double());
    }
    case Kind::kString:
      return std::hash<std::string_view>{}(value.bytes());
    case Kind::kTuple: {
      std::size_t hash = 0x9E3779B97F4A7C15u;  // mixing as in boost::hash_combine
      for (const Value& item : value.items()) {
        hash ^= hash_value(runtime, item) + 0x9E3779B97F4A7C15u + (hash << 6) + (hash >> 2);
      }
      return hash;
    }
    case Kind::kRange: {
      const RangeObject& range = value.range();
      return std::hash<std::int64_t>{}(range.length) ^ (std::hash<std::int64_t>{}(range.start) << 1);
    }
    default:
      if (!is_hashable(value)) fail(fmt::format("TypeError: unhashable type: '{}'", type_name(value)));
      return std::hash<const void*>{}(value.object());
  }
}

bool equals(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.bytes() == b.bytes();
    case Kind::kList:
    case Kind::kTuple: {
      if (a.object() == b.object()) return true;
      runtime.check_stack();
      const auto& x = a.items();
      const auto& y = b.items();
      if (x.size() != y.size()) return false;
      for (std::size_t i = 0; i < x.size(); ++i) {
        runtime.step();
        if (!equals(runtime, x[i], y[i])) return false;
      }
      return true;
    }
    case Kind::kDict: {
      if (a.object() == b.object()) return true;
      runtime.check_stack();
      if (a.dict().entries.size() != b.dict().entries.size()) return false;
      for (const auto& [key, value] : a.dict().entries) {
        runtime.step();
        const Value* other = b.dict().find(runtime, key);
        if (other == nullptr || !equals(runtime, value, *other)) return false;
      }
      return true;
    }
    case Kind::kView: {
      if (a.view().part == ViewObject::Part::kValues || a.view().part != b.view().part) {
        return a.object() == b.object();
      }
      const auto items = iterate(runtime, a);
      if (static_cast<std::int64_t>(items.size()) != length_of(runtime, b)) return false;
      for (const Value& item : items) {
        if (!contains(runtime, b, item)) return false;
      }
      return true;
    }
    case Kind::kRange: {
      const RangeObject& x = a.range();
      const RangeObject& y = b.range();
      if (x.length != y.length) return false;
      return x.length == 0 || (x.start == y.start && (x.length == 1 || x.step == y.step));
    }
    default:
      return a.object() == b.object();
  }
}

bool less(Runtime& runtime, const Value& a, const Value& b, const char* symbol) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == -1;
  if (a.is_string() && b.is_string()) return a.bytes() < b.bytes();  // UTF-8 order is code point order
  if (a.is_sequence() && a.kind() == b.kind()) {
    runtime.check_stack();
    const auto& x = a.items();
    const auto& y = b.items();
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i) {
      runtime.step();
      if (!equals(runtime, x[i], y[i])) return less(runtime, x[i], y[i], symbol);
    }
    return x.size() < y.size();
  }
  require_defined(a);
  require_defined(b);
  fail(fmt::format("TypeError: '{}' not supported between instances of '{}' and '{}'", symbol, type_name(a),
                   type_name(b)));
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.is_string()) {
        fail(
            fmt::format("TypeError: 'in <string>' requires string as left operand, not {}", type_name(item)));
      }
      runtime.work(container.text().size());
      return container.bytes().find(item.bytes()) != std::string::npos;
    case Kind::kDict:
      return container.dict().find(runtime, item) != nullptr;
    case Kind::kView:
      if (container.view().part == ViewObject::Part::kKeys) {
        return container.view().dict.dict().find(runtime, item) != nullptr;
      }
      [[fallthrough]];
    default:
      if (!is_iterable(container)) {
        fail(fmt::format("TypeError: argument of type '{}' is not iterable", type_name(container)));
      }
      for (const Value& element : iterate(runtime, container)) {
        runtime.step();
        if (equals(runtime, element, item)) return true;
      }
      return false;
    case Kind::kList:
    case Kind::kTuple:
      for (const Value& element : container.items()) {
        runtime.step();
        if (equals(runtime, element, item)) return true;
      }
      return false;
  }
}

bool has_length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kRange:
      return true;
    default:
      return false;
  }
}

std::int64_t length_of(Runtime&, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<std::int64_t>(value.string().num_chars);
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<std::int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<std::int64_t>(value.dict().entries.size());
    case Kind::kView:
      return static_cast<std::int64_t>(value.view().dict.dict().entries.size());
    case Kind::kRange:
      return value.range().length;
    default:
      fail(fmt::format("TypeError: object of type '{}' has no len()", type_name(value)));
  }
}

bool is_iterable(const Value& value) {
  return has_length(value) || value.is(Kind::kIterator);
}

std::vector<Value> iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> out;
  if (has_length(value)) {
    const auto length = static_cast<std::size_t>(length_of(runtime, value));
    runtime.check_memory(length * sizeof(Value));
    runtime.work(length * sizeof(Value));
    out.reserve(length);
  }
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kString: {
      const std::string_view bytes = value.bytes();
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t begin = at;
        next_code_point(bytes, at);
        out.push_back(make_string(runtime, value.text().substr(begin, at)));
      }
      break;
    }
    case Kind::kList:
    case Kind::kTuple:
      out = value.items();
      break;
    case Kind::kDict:
      for (const auto& entry : value.dict().entries) out.push_back(entry.first);
      break;
    case Kind::kView:
      for (const auto& [key, item] : value.view().dict.dict().entries) {
        if (value.view().part == ViewObject::Part::kKeys) {
          out.push_back(key);
        } else if (value.view().part == ViewObject::Part::kValues) {
          out.push_back(item);
        } else {
          out.push_back(make_tuple(runtime, {key, item}));
        }
      }
      break;
    case Kind::kRange:
      for (std::int64_t i = 0; i < value.range().length; ++i) out.push_back(value.range().at(i));
      break;
    case Kind::kIterator: {
      IteratorObject& iterator = value.iterator();
      out.assign(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next), iterator.items.end());
      iterator.next = iterator.items.size();
      break;
    }
    default:
      fail(fmt::format("TypeError: '{}' object is not iterable", type_name(value)));
  }
  return out;
}

std::int64_t index_value(const Value& value, const char* what) {
  if (value.is_integral()) return value.as_int();
  require_defined(value);
  fail(fmt::format("TypeError: {} must be an integer, not '{}'", what, type_name(value)));
}

}  // namespace quire::jinja
