// Global functions.
#include <algorithm>
#include <array>
#include <ctime>

#include <fmt/core.h>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quire::jinja {
namespace {

Value range(Interpreter& in, const Arguments& args) {
  if (args.positional.empty() || args.positional.size() > 3 || !args.named.empty()) {
    fail("TypeError: range() takes 1 to 3 positional arguments");
  }
  const auto at = [&](std::size_t i) { return index_value(args.positional[i], "range() argument"); };
  const bool one = args.positional.size() == 1;
  return make_range(in.runtime(), one ? 0 : at(0), one ? at(0) : at(1),
                    args.positional.size() == 3 ? at(2) : 1);
}

Ref<DictObject> dict_of(Interpreter& in, const Arguments& args, const char* function) {
  Runtime& runtime = in.runtime();
  const Ref<DictObject> dict = new_dict(runtime);
  if (args.positional.size() > 1)
    fail(fmt::format("TypeError: {}() takes at most 1 positional argument", function));
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.dict().entries) dict->set(runtime, key, value);
    } else {
      for (const Value& pair : iterate(runtime, source)) {
        runtime.step();
        if (!is_iterable(pair)) fail("TypeError: a dictionary is made of pairs");
        std::vector<Value> items = iterate(runtime, pair);
        if (items.size() != 2) fail("ValueError: a dictionary is made of pairs");
        dict->set(runtime, std::move(items[0]), std::move(items[1]));
      }
    }
  }
  for (const auto& [key, value] : args.named) dict->set(runtime, key, value);
  return dict;
}

Value dict(Interpreter& in, const Arguments& args) {
  return Value(dict_of(in, args, "dict").get());
}

Value make_namespace(Interpreter& in, const Arguments& args) {
  const Ref<NamespaceObject> ns = new_object<NamespaceObject>(in.runtime());
  ns->attributes = dict_of(in, args, "namespace");
  in.remember(ns);
  return Value(ns.get());
}

Value raise_exception(Interpreter& in, const Arguments& args) {
  const auto bound = args.bind<1>("raise_exception", {"message"}, 1);
  throw TemplateError{to_text(in.runtime(), *bound[0]).bytes(), true};
}

Value strftime_now(Interpreter& in, const Arguments& args) {
  const auto bound = args.bind<1>("strftime_now", {"format"}, 1);
  if (!bound[0]->is_string()) fail("TypeError: strftime_now() takes a format string");
  return make_string(in.runtime(), strftime_text(in.now(), bound[0]->text()));
}

struct CyclerObject : CallableObject {
  CyclerObject(Runtime* object_owner, std::vector<Value> cycler_items)
      : CallableObject(object_owner), items(std::move(cycler_items)) {}
  Value call(Interpreter&, Arguments&) override { fail("TypeError: 'Cycler' object is not callable"); }
  bool can_call() const override { return false; }
  bool attribute(Interpreter& interpreter, std::string_view name, Value* out) override {
    static constexpr Method kNext{"next", [](Interpreter&, const Value& self, const Arguments& args) {
                                    args.bind_none("next");
                                    auto& cycler = static_cast<CyclerObject&>(self.callable());
                                    Value item = cycler.items[cycler.position];
                                    cycler.position = (cycler.position + 1) % cycler.items.size();
                                    return item;
                                  }};
    static constexpr Method kReset{"reset", [](Interpreter&, const Value& self, const Arguments& args) {
                                     args.bind_none("reset");
                                     static_cast<CyclerObject&>(self.callable()).position = 0;
                                     return Value::none();
                                   }};
    if (name == "current") {
      *out = items[position];
    } else if (name == "next" || name == "reset") {
      *out = make_bound_method(interpreter.runtime(), name == "next" ? kNext : kReset, Value(this));
    } else {
      return false;
    }
    return true;
  }
  std::string describe() const override { return "<Cycler>"; }
  const char* type_name() const override { return "Cycler"; }

  std::vector<Value> items;
  std::size_t position = 0;
};

Value cycler(Interpreter& in, const Arguments& args) {
  if (args.positional.empty()) fail("RuntimeError: cycler() needs at least one item");
  return Value(new_object<CyclerObject>(in.runtime(), args.positional).get());
}

struct JoinerObject : CallableObject {
  JoinerObject(Runtime* object_owner, Value joiner_separator)
      : CallableObject(object_owner), separator(std::move(joiner_separator)) {}
  Value call(Interpreter& interpreter, Arguments& arguments) override {
    arguments.bind_none("joiner");
    if (used) return separator;
    used = true;
    return make_string(interpreter.runtime(), "");
  }
  std::string describe() const override { return "<Joiner>"; }
  const char* type_name() const override { return "Joiner"; }

  Value separator;
  bool used = false;
};

Value joiner(Interpreter& in, const Arguments& args) {
  const auto bound = args.bind<1>("joiner", {"sep"});
  const Value separator = bound[0] == nullptr ? make_string(in.runtime(), ", ") : *bound[0];
  return Value(new_object<JoinerObject>(in.runtime(), separator).get());
}

// One directive, by the C library in the C locale; every result is short.
std::string strftime_directive(const std::tm& time, const std::string& directive) {
  std::array<char, 256> buffer{};
  const std::string format = directive + "|";  // never empty, so that 0 means failure
  const std::size_t length = std::strftime(buffer.data(), buffer.size(), format.c_str(), &time);
  return std::string(buffer.data(), length == 0 ? 0 : length - 1);
}

}  // namespace

TrustText strftime_text(std::int64_t now, const TrustText& format) {
  const auto seconds = static_cast<std::time_t>(now);
  std::tm time{};
  localtime_r(&seconds, &time);
  const bool trusted = format.fully_trusted();
  TrustText out;
  const std::string_view view = format.view();
  for (std::size_t at = 0; at < view.size();) {
    const std::size_t percent = std::min(view.find('%', at), view.size());
    out.append(format, at, percent);
    if (percent == view.size()) break;
    std::size_t end = percent + 1;
    while (end < view.size() && std::string_view("-_0^#").find(view[end]) != std::string_view::npos) ++end;
    const char code = end < view.size() ? view[end] : '\0';
    if (code == 'E' || code == 'O') ++end;  // alternative forms: the same in the C locale
    static constexpr std::string_view kCodes = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyY%";
    const char final_code = end < view.size() ? view[end] : '\0';
    at = std::min(end + 1, view.size());
    if (final_code == 'f') {
      out.append("000000", trusted);  // `now` has whole seconds
    } else if (final_code == 'z' || final_code == 'Z') {
      // a time without a zone, as datetime.now() is
    } else if (final_code != '\0' && kCodes.find(final_code) != std::string_view::npos) {
      // Not more than one flag: the C library would take any number of them.
      const std::string flag =
          end - percent > 1 && code == final_code ? std::string(1, view[end - 1]) : std::string();
      out.append(strftime_directive(time, "%" + flag + std::string(1, final_code)), trusted);
    } else {
      out.append(format, percent, at);
    }
  }
  return out;
}

const Function* find_function(std::string_view name) {
  static constexpr Function kFunctions[] = {
      {"range", range},
      {"dict", dict},
      {"namespace", make_namespace},
      {"cycler", cycler},
      {"joiner", joiner},
      {"raise_exception", raise_exception},
      {"strftime_now", strftime_now},
  };
  for (const Function& function : kFunctions) {
    if (name == function.name) return &function;
  }
  return nullptr;
}

}  // namespace quire::jinja
