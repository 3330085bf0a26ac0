// Filters on sequences and mappings as wholes.
#include <algorithm>

#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/sequence_tools.h"

namespace quire::jinja {

Value attribute_of(Interpreter& in, const Value& item, const Value& path, const Value* otherwise) {
  const auto step = [&](const Value& object, const Value& key) {
    Value value = get_item(in, object, key);
    return value.is_undefined() && otherwise != nullptr && !otherwise->is_none() ? *otherwise : value;
  };
  if (!path.is_string()) return step(item, path);
  Value value = item;
  const std::string_view view = path.bytes();
  for (std::size_t begin = 0; begin <= view.size();) {
    const std::size_t end = std::min(view.find('.', begin), view.size());
    const std::string_view part = view.substr(begin, end - begin);
    bool ok = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    const std::int64_t index = ok ? parse_integer(part, 10, &ok) : 0;
    value =
        step(value, ok ? Value::integer(index) : make_string(in.runtime(), path.text().substr(begin, end)));
    begin = end + 1;
  }
  return value;
}

Value fold_case(Interpreter& in, const Value& value) {
  if (!value.is_string()) return value;
  return make_string(in.runtime(), map_case(in.runtime(), value.text(), CaseMap::kLower));
}

std::vector<Value> iterate_or_fail(Interpreter& in, const Value& value) {
  if (!is_iterable(value)) fail(fmt::format("TypeError: '{}' object is not iterable", type_name(value)));
  return iterate(in.runtime(), value);
}

namespace {

bool flag(const Value* value, bool otherwise) {
  return value == nullptr ? otherwise : truthy(*value);
}

// The value that a sort, a min or a unique compares.
Value sort_key(Interpreter& in, const Value& item, const Value* attribute, bool case_sensitive) {
  const Value key = attribute == nullptr || attribute->is_none() ? item : attribute_of(in, item, *attribute);
  return case_sensitive ? key : fold_case(in, key);
}

Value length(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("length");
  return Value::integer(length_of(in.runtime(), v));
}

Value first(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("first");
  if (v.is(Kind::kIterator)) {  // takes only this one
    IteratorObject& iterator = v.iterator();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    return make_undefined(in.runtime(), "no first item, sequence was empty");
  }
  if (v.is_sequence() && !v.items().empty()) return v.items().front();
  const std::vector<Value> items = iterate_or_fail(in, v);
  return items.empty() ? make_undefined(in.runtime(), "no first item, sequence was empty") : items.front();
}

Value last(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("last");
  if (v.is(Kind::kIterator)) fail("TypeError: 'generator' object is not reversible");
  if (v.is_sequence() && !v.items().empty()) return v.items().back();
  const std::vector<Value> items = iterate_or_fail(in, v);
  return items.empty() ? make_undefined(in.runtime(), "no last item, sequence was empty") : items.back();
}

Value default_value(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<2>("default", {"default_value", "boolean"});
  if (!v.is_undefined() && (!flag(bound[1], false) || truthy(v))) return v;
  return bound[0] == nullptr ? make_string(in.runtime(), "") : *bound[0];
}

Value list(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("list");
  return make_list(in.runtime(), iterate_or_fail(in, v));
}

Value join(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<2>("join", {"d", "attribute"});
  std::vector<Value> items = iterate_or_fail(in, v);
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    for (Value& item : items) item = attribute_of(in, item, *bound[1]);
  }
  const TrustText separator = bound[0] == nullptr ? TrustText() : to_text(in.runtime(), *bound[0]);
  return make_string(in.runtime(), join_texts(in.runtime(), separator, items, false));
}

Value reverse(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("reverse");
  if (v.is_string()) {
    return get_slice(in, v, Value::none(), Value::none(), Value::integer(-1));
  }
  std::vector<Value> items = iterate_or_fail(in, v);
  std::reverse(items.begin(), items.end());
  return make_iterator(in.runtime(), std::move(items));
}

using Keyed = std::pair<std::vector<Value>, Value>;

void sort_keyed(Interpreter& in, std::vector<Keyed>& keyed, bool descending) {
  const auto before = [&in](const Keyed& a, const Keyed& b) {
    in.runtime().step();
    for (std::size_t i = 0; i < a.first.size(); ++i) {
      if (i + 1 < a.first.size() && equals(in.runtime(), a.first[i], b.first[i])) continue;
      return less(in.runtime(), a.first[i], b.first[i]);
    }
    return false;
  };
  if (descending) {
    std::stable_sort(keyed.begin(), keyed.end(),
                     [&](const Keyed& a, const Keyed& b) { return before(b, a); });
  } else {
    std::stable_sort(keyed.begin(), keyed.end(), before);
  }
}

Value sort(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<3>("sort", {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = flag(bound[1], false);
  // attribute: several names, separated by commas
  std::vector<Value> attributes;
  if (bound[2] != nullptr && bound[2]->is_string()) {
    const std::string_view names = bound[2]->bytes();
    for (std::size_t begin = 0; begin <= names.size();) {
      const std::size_t end = std::min(names.find(',', begin), names.size());
      attributes.push_back(make_string(in.runtime(), names.substr(begin, end - begin)));
      begin = end + 1;
    }
  } else if (bound[2] != nullptr && !bound[2]->is_none()) {
    attributes.push_back(*bound[2]);
  }
  std::vector<Keyed> keyed;
  for (Value& item : iterate_or_fail(in, v)) {
    std::vector<Value> keys;
    if (attributes.empty()) keys.push_back(sort_key(in, item, nullptr, case_sensitive));
    for (const Value& attribute : attributes) keys.push_back(sort_key(in, item, &attribute, case_sensitive));
    keyed.emplace_back(std::move(keys), std::move(item));
  }
  sort_keyed(in, keyed, flag(bound[0], false));
  std::vector<Value> out;
  for (Keyed& entry : keyed) out.push_back(std::move(entry.second));
  return make_list(in.runtime(), std::move(out));
}

Value unique(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<2>("unique", {"case_sensitive", "attribute"});
  const Ref<DictObject> seen = new_dict(in.runtime());
  std::vector<Value> out;
  for (Value& item : iterate_or_fail(in, v)) {
    in.runtime().step();
    Value key = sort_key(in, item, bound[1], flag(bound[0], false));
    if (seen->find(in.runtime(), key) != nullptr) continue;
    seen->set(in.runtime(), std::move(key), Value::none());
    out.push_back(std::move(item));
  }
  return make_iterator(in.runtime(), std::move(out));
}

template <bool maximum>
Value extreme(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<2>(maximum ? "max" : "min", {"case_sensitive", "attribute"});
  const std::vector<Value> items = iterate_or_fail(in, v);
  if (items.empty()) return make_undefined(in.runtime(), "no aggregated item, sequence was empty");
  const bool case_sensitive = flag(bound[0], false);
  std::size_t best = 0;
  Value best_key = sort_key(in, items[0], bound[1], case_sensitive);
  for (std::size_t i = 1; i < items.size(); ++i) {
    in.runtime().step();
    Value key = sort_key(in, items[i], bound[1], case_sensitive);
    if (maximum ? less(in.runtime(), best_key, key, ">") : less(in.runtime(), key, best_key)) {
      best = i;
      best_key = std::move(key);
    }
  }
  return items[best];
}

Value sum(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<2>("sum", {"attribute", "start"});
  Value total = bound[1] == nullptr ? Value::integer(0) : *bound[1];
  if (total.is_string()) fail("TypeError: sum() can't sum strings");
  for (const Value& item : iterate_or_fail(in, v)) {
    in.runtime().step();
    const bool direct = bound[0] == nullptr || bound[0]->is_none();
    total = add_values(in, total, direct ? item : attribute_of(in, item, *bound[0]));
  }
  return total;
}

Value items(Interpreter& in, const Value& v, const Arguments& args) {
  args.bind_none("items");
  if (v.is_undefined()) return make_iterator(in.runtime(), {});
  if (!v.is(Kind::kDict)) fail("TypeError: can only get item pairs from a mapping");
  std::vector<Value> pairs;
  for (const auto& [key, value] : v.dict().entries) pairs.push_back(make_tuple(in.runtime(), {key, value}));
  return make_iterator(in.runtime(), std::move(pairs));
}

Value dictsort(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<3>("dictsort", {"case_sensitive", "by", "reverse"});
  std::string by = "key";
  if (bound[1] != nullptr) by = bound[1]->is_string() ? bound[1]->bytes() : "";
  if (by != "key" && by != "value") fail("dictsort() sorts by \"key\" or \"value\"");
  require_defined(v);
  if (!v.is(Kind::kDict)) fail(fmt::format("'{} object' has no attribute 'items'", type_name(v)));
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : v.dict().entries) {
    Value sort_by = by == "key" ? key : value;
    if (!flag(bound[0], false)) sort_by = fold_case(in, sort_by);
    keyed.emplace_back(std::vector<Value>{std::move(sort_by)}, make_tuple(in.runtime(), {key, value}));
  }
  sort_keyed(in, keyed, flag(bound[2], false));
  std::vector<Value> out;
  for (Keyed& entry : keyed) out.push_back(std::move(entry.second));
  return make_list(in.runtime(), std::move(out));
}

Value batch(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<2>("batch", {"linecount", "fill_with"}, 1);
  const std::int64_t size = index_value(*bound[0], "linecount");
  std::vector<Value> out;
  std::vector<Value> line;
  for (Value& item : iterate_or_fail(in, v)) {
    in.runtime().step();
    if (static_cast<std::int64_t>(line.size()) == size) {
      out.push_back(make_list(in.runtime(), std::move(line)));
      line.clear();
    }
    line.push_back(std::move(item));
  }
  if (!line.empty()) {
    if (bound[1] != nullptr && !bound[1]->is_none() && size > static_cast<std::int64_t>(line.size())) {
      in.runtime().check_memory(static_cast<std::size_t>(size) > SIZE_MAX / sizeof(Value)
                                    ? SIZE_MAX
                                    : static_cast<std::size_t>(size) * sizeof(Value));
      line.resize(static_cast<std::size_t>(size), *bound[1]);
    }
    out.push_back(make_list(in.runtime(), std::move(line)));
  }
  return make_iterator(in.runtime(), std::move(out));
}

Value slice(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<2>("slice", {"slices", "fill_with"}, 1);
  const std::int64_t slices = index_value(*bound[0], "slices");
  const std::vector<Value> source = iterate_or_fail(in, v);
  if (slices == 0) fail("ZeroDivisionError: integer division or modulo by zero");
  std::vector<Value> out;
  if (slices > 0) {
    in.runtime().check_memory(static_cast<std::size_t>(std::min<std::int64_t>(slices, INT32_MAX)) * 64);
    const std::size_t count = static_cast<std::size_t>(slices);
    const std::size_t per_slice = source.size() / count;
    const std::size_t with_extra = source.size() % count;
    std::size_t at = 0;
    for (std::size_t i = 0; i < count; ++i) {
      in.runtime().step();
      const std::size_t size = per_slice + (i < with_extra ? 1 : 0);
      std::vector<Value> part(source.begin() + static_cast<std::ptrdiff_t>(at),
                              source.begin() + static_cast<std::ptrdiff_t>(at + size));
      at += size;
      if (bound[1] != nullptr && !bound[1]->is_none() && i >= with_extra) part.push_back(*bound[1]);
      out.push_back(make_list(in.runtime(), std::move(part)));
    }
  }
  return make_iterator(in.runtime(), std::move(out));
}

}  // namespace

const std::vector<NamedFilter>& sequence_filters() {
  static const std::vector<NamedFilter> filters = {
      {"length", {length}},         {"count", {length}},    {"first", {first}},   {"last", {last}},
      {"default", {default_value}}, {"d", {default_value}}, {"list", {list}},     {"join", {join}},
      {"reverse", {reverse}},       {"sort", {sort}},       {"unique", {unique}}, {"min", {extreme<false>}},
      {"max", {extreme<true>}},     {"sum", {sum}},         {"items", {items}},   {"dictsort", {dictsort}},
      {"batch", {batch}},           {"slice", {slice}},
  };
  return filters;
}

}  // namespace quire::jinja
