// Values from JSON, and values to JSON as Python's json.dumps writes them.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "text/jinja/filters.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace quire::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const Arguments& arguments) : runtime_(runtime) {
    // Hugging Face's signature of tojson.
    const auto bound = arguments.bind<4>("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
    ensure_ascii_ = bound[0] != nullptr && truthy(*bound[0]);
    sort_keys_ = bound[3] != nullptr && truthy(*bound[3]);
    if (bound[1] != nullptr && !bound[1]->is_none()) {
      has_indent_ = true;
      if (bound[1]->is_string()) {
        indent_ = bound[1]->text();
      } else {
        const std::int64_t width = index_value(*bound[1], "indent");
        if (width > 0) {
          if (static_cast<std::uint64_t>(width) > runtime.limits().max_output_bytes) {
            runtime.check_text_bytes(runtime.limits().max_output_bytes + 1);
          }
          indent_ = TrustText(std::string(static_cast<std::size_t>(width), ' '), true);
        }
      }
      item_separator_ = TrustText(",", true);
    }
    if (bound[2] != nullptr && !bound[2]->is_none()) {
      const std::vector<Value> pair = iterate(runtime, *bound[2]);
      if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
        fail("TypeError: tojson() separators must be a pair of strings");
      }
      item_separator_ = pair[0].text();
      key_separator_ = pair[1].text();
    }
  }

  TrustText write(const Value& value) {
    append(value, 0);
    return std::move(out_);
  }

 private:
  void append(const Value& value, std::size_t depth) {
    runtime_.step();
    runtime_.check_stack();
    runtime_.check_text_bytes(out_.size());
    switch (value.kind()) {
      case Kind::kNone:
        out_.append("null", true);
        return;
      case Kind::kBool:
        out_.append(value.as_bool() ? "true" : "false", true);
        return;
      case Kind::kInt:
        out_.append(std::to_string(value.as_int()), true);
        return;
      case Kind::kFloat:
        out_.append(number_text(value.as_double()), true);
        return;
      case Kind::kString:
        append_string(value.text());
        return;
      case Kind::kList:
      case Kind::kTuple:
        append_list(value.items(), depth);
        return;
      case Kind::kDict:
        append_dict(value.dict(), depth);
        return;
      default:
        fail(fmt::format("TypeError: Object of type {} is not JSON serializable", type_name(value)));
    }
  }

  static std::string number_text(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_repr(d);
  }

  void append_string(const TrustText& text) {
    runtime_.work(text.size());
    out_.append("\"", true);
    text.for_each_run([&](std::size_t begin, std::size_t end, bool trusted) {
      std::string piece;
      piece.reserve(end - begin);
      for (std::size_t at = begin; at < end;) {
        const std::size_t start = at;
        const CodePoint c = next_code_point(text.view(), at);
        static constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b";
        static constexpr std::string_view kEscapes = "\"\\nrtfb";
        const std::size_t special = c < 0x80 ? kSpecial.find(static_cast<char>(c)) : std::string_view::npos;
        if (special != std::string_view::npos) {
          piece += '\\';
          piece += kEscapes[special];
        } else if (c < 0x20 || (ensure_ascii_ && c > 0x7E)) {
          append_escape(piece, c);
        } else {
          piece.append(text.view().substr(start, at - start));
        }
      }
      out_.append(piece, trusted);
    });
    out_.append("\"", true);
  }

  static void append_escape(std::string& piece, CodePoint c) {
    if (c < 0x10000) {
      piece += fmt::format("\\u{:04x}", c);
    } else {
      const CodePoint offset = c - 0x10000;
      piece += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
    }
  }

  void start_line(std::size_t depth) {
    if (!has_indent_) return;
    out_.append("\n", true);
    for (std::size_t i = 0; i < depth; ++i) out_.append(indent_);
    runtime_.work(depth * indent_.size());
    runtime_.check_text_bytes(out_.size());
  }

  void append_list(const std::vector<Value>& items, std::size_t depth) {
    out_.append("[", true);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(item_separator_);
      start_line(depth + 1);
      append(items[i], depth + 1);
    }
    if (!items.empty()) start_line(depth);
    out_.append("]", true);
  }

  void append_key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        append_string(key.text());
        return;
      case Kind::kNone:
        out_.append("\"null\"", true);
        return;
      case Kind::kBool:
        out_.append(key.as_bool() ? "\"true\"" : "\"false\"", true);
        return;
      case Kind::kInt:
        out_.append("\"" + std::to_string(key.as_int()) + "\"", true);
        return;
      case Kind::kFloat:
        out_.append("\"" + number_text(key.as_double()) + "\"", true);
        return;
      default:
        fail(fmt::format("TypeError: keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
  }

  void append_dict(const DictObject& dict, std::size_t depth) {
    std::vector<const std::pair<Value, Value>*> entries;
    entries.reserve(dict.entries.size());
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (sort_keys_) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return less(runtime_, a->first, b->first); });
    }
    out_.append("{", true);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.append(item_separator_);
      start_line(depth + 1);
      append_key(entries[i]->first);
      out_.append(key_separator_);
      append(entries[i]->second, depth + 1);
    }
    if (!entries.empty()) start_line(depth);
    out_.append("}", true);
  }

  Runtime& runtime_;
  bool ensure_ascii_ = false;
  bool sort_keys_ = false;
  bool has_indent_ = false;
  TrustText indent_;
  TrustText item_separator_{", ", true};
  TrustText key_separator_{": ", true};
  TrustText out_;
};

Value string_from_json(Runtime& runtime, const std::string& text, bool trusted) {
  return make_string(runtime, TrustText(is_valid_utf8(text) ? text : sanitize_utf8(text), trusted));
}

}  // namespace

TrustText to_json(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return JsonWriter(runtime, arguments).write(value);
}

Value from_json(Runtime& runtime, const nlohmann::ordered_json& json, bool trusted) {
  runtime.step();
  runtime.check_stack();
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::null:
      return Value::none();
    case nlohmann::ordered_json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const auto value = json.get<std::uint64_t>();
      if (value > static_cast<std::uint64_t>(INT64_MAX)) return Value::real(static_cast<double>(value));
      return Value::integer(static_cast<std::int64_t>(value));
    }
    case nlohmann::ordered_json::value_t::number_float:
      return Value::real(json.get<double>());
    case nlohmann::ordered_json::value_t::string:
      return string_from_json(runtime, json.get_ref<const std::string&>(), trusted);
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(runtime, item, trusted));
      return make_list(runtime, std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      const Ref<DictObject> dict = new_dict(runtime);
      for (const auto& [key, value] : json.items()) {
        dict->set(runtime, string_from_json(runtime, key, trusted), from_json(runtime, value, trusted));
      }
      return Value(dict.get());
    }
    default:
      return Value::none();  // binary and discarded values do not come from JSON text
  }
}

}  // namespace quire::jinja
