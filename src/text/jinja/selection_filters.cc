// Filters that apply filters, tests and attributes to each element; and the table of all filters.
#include <algorithm>
#include <unordered_map>

#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/sequence_tools.h"

namespace quire::jinja {
namespace {

// The arguments behind the first `skip`, for the filter or test that is applied.
Arguments rest_of(const Arguments& args, std::size_t skip) {
  Arguments rest;
  rest.positional.assign(
      args.positional.begin() + static_cast<std::ptrdiff_t>(std::min(skip, args.positional.size())),
      args.positional.end());
  rest.named = args.named;
  return rest;
}

std::string name_argument(const Value& value, const char* what) {
  if (!value.is_string()) fail(fmt::format("TypeError: the name of a {} must be a string", what));
  return value.bytes();
}

Value map(Interpreter& in, const Value& v, const Arguments& args) {
  std::vector<Value> out;
  if (!truthy(v))
    return make_iterator(in.runtime(), {});  // none and other empty values have no elements here
  if (args.positional.empty()) {
    const Value* attribute = nullptr;
    const Value* otherwise = nullptr;
    for (const auto& [name, value] : args.named) {
      if (name.bytes() == "attribute") {
        attribute = &value;
      } else if (name.bytes() == "default") {
        otherwise = &value;
      } else {
        fail(fmt::format("map() got an unexpected keyword argument '{}'", name.bytes()));
      }
    }
    if (attribute == nullptr) fail("map() requires a filter argument");
    for (const Value& item : iterate_or_fail(in, v)) {
      in.runtime().step();
      out.push_back(attribute_of(in, item, *attribute, otherwise));
    }
    return make_iterator(in.runtime(), std::move(out));
  }
  const std::string name = name_argument(args.positional[0], "filter");
  const Filter* filter = find_filter(name);
  const Arguments rest = rest_of(args, 1);
  for (const Value& item : iterate_or_fail(in, v)) {
    in.runtime().step();
    if (filter == nullptr) fail(fmt::format("no filter named '{}'", name));
    out.push_back(filter->apply(in, item, rest));
  }
  return make_iterator(in.runtime(), std::move(out));
}

template <bool keep, bool by_attribute>
Value select(Interpreter& in, const Value& v, const Arguments& args) {
  if (!truthy(v)) return make_iterator(in.runtime(), {});
  if (by_attribute && args.positional.empty()) fail("missing parameter for attribute name");
  constexpr std::size_t kTestAt = by_attribute ? 1 : 0;
  const Test* test = nullptr;
  std::string name;
  const bool has_test = args.positional.size() > kTestAt;
  if (has_test) {
    name = name_argument(args.positional[kTestAt], "test");
    test = find_test(name);
  }
  const Arguments rest = rest_of(args, kTestAt + 1);
  std::vector<Value> out;
  for (Value& item : iterate_or_fail(in, v)) {
    in.runtime().step();
    if (has_test && test == nullptr) fail(fmt::format("no test named '{}'", name));
    const Value subject = by_attribute ? attribute_of(in, item, args.positional[0]) : item;
    const bool passes = has_test ? test->apply(in, subject, rest) : truthy(subject);
    if (passes == keep) out.push_back(std::move(item));
  }
  return make_iterator(in.runtime(), std::move(out));
}

Value groupby(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<3>("groupby", {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = bound[2] != nullptr && truthy(*bound[2]);
  Runtime& runtime = in.runtime();
  struct Entry {
    Value key, original_key, item;
  };
  std::vector<Entry> entries;
  for (Value& item : iterate_or_fail(in, v)) {
    Value original = attribute_of(in, item, *bound[0], bound[1]);
    Value key = case_sensitive ? original : fold_case(in, original);
    entries.push_back({std::move(key), std::move(original), std::move(item)});
  }
  std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    runtime.step();
    return less(runtime, a.key, b.key);
  });
  std::vector<Value> out;
  for (std::size_t begin = 0; begin < entries.size();) {
    std::size_t end = begin;
    std::vector<Value> group;
    while (end < entries.size() && equals(runtime, entries[begin].key, entries[end].key)) {
      group.push_back(entries[end++].item);
    }
    if (end == begin) ++end;  // NaN is not even equal to itself
    out.push_back(make_group(runtime, entries[begin].original_key, make_list(runtime, std::move(group))));
    begin = end;
  }
  return make_list(runtime, std::move(out));
}

Value attr(Interpreter& in, const Value& v, const Arguments& args) {
  const auto bound = args.bind<1>("attr", {"name"}, 1);
  // Attributes only: items of a mapping are not found by this filter.
  require_defined(v);
  const Value name = make_string(in.runtime(), to_text(in.runtime(), *bound[0]));
  return get_plain_attribute(in, v, name);
}

}  // namespace

const Filter* find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> filters = [] {
    std::unordered_map<std::string_view, Filter> all = {
        {"map", {map}},
        {"select", {select<true, false>}},
        {"reject", {select<false, false>}},
        {"selectattr", {select<true, true>}},
        {"rejectattr", {select<false, true>}},
        {"groupby", {groupby}},
        {"attr", {attr}},
    };
    for (const auto* table : {&text_filters(), &number_filters(), &sequence_filters()}) {
      for (const NamedFilter& filter : *table) all.emplace(filter.name, filter.filter);
    }
    return all;
  }();
  const auto at = filters.find(name);
  return at == filters.end() ? nullptr : &at->second;
}

}  // namespace quire::jinja
