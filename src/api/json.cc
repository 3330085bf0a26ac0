#include "api/json.h"

#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace quire {
namespace {

// Builds the value as the parser goes. nlohmann's own builder looks names up one by one in an ordered object,
// which is quadratic in their number; here the names of the open objects are kept in hash sets.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return add(Json(nullptr)) != nullptr; }
  bool boolean(bool value) override { return add(Json(value)) != nullptr; }
  bool number_integer(number_integer_t value) override { return add(Json(value)) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(value)) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override { return add(Json(value)) != nullptr; }
  bool string(string_t& value) override { return add(Json(std::move(value))) != nullptr; }
  bool binary(binary_t&) override { return fail("binary values are not part of JSON"); }

  bool start_object(std::size_t) override {
    if (!open(Json::object())) return false;
    names_.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    if (!names_.back().insert(name).second) {
      return fail(fmt::format("the name \"{}\" appears twice in one object", name.substr(0, 64)));
    }
    name_ = std::move(name);
    return true;
  }
  bool end_object() override {
    names_.pop_back();
    open_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // nlohmann's text ends with "; last read: ..." or the like, which repeats the client's bytes.
    std::string what = error.what();
    const std::size_t colon = what.find("] ");
    if (colon != std::string::npos) what = what.substr(colon + 2);
    what = what.substr(0, what.find("; last read"));
    return fail(fmt::format("at byte {}: {}", position, what));
  }

  const std::string& error() const { return error_; }
  Json take() { return std::move(root_); }

 private:
  bool fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }

  bool open(Json value) {
    if (open_.size() >= kMaxJsonDepth) {
      return fail(fmt::format("nested more than {} levels deep", kMaxJsonDepth));
    }
    Json* added = add(std::move(value));
    if (added != nullptr) open_.push_back(added);
    return added != nullptr;
  }

  // The elements of open_ stay where they are: only the innermost one grows.
  Json* add(Json value) {
    if (++num_values_ > kMaxJsonValues) {
      fail(fmt::format("more than {} values", kMaxJsonValues));
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      auto& elements = parent.get_ref<Json::array_t&>();
      elements.push_back(std::move(value));
      return &elements.back();
    }
    auto& members = parent.get_ref<Json::object_t&>();
    members.emplace_back(std::move(name_), std::move(value));
    return &members.back().second;
  }

  Json root_;
  std::vector<Json*> open_;
  std::vector<std::unordered_set<std::string>> names_;
  std::string name_;
  std::string error_;
  std::size_t num_values_ = 0;
};

}  // namespace

Result<Json> parse_json(std::string_view text) {
  if (text.empty()) return invalid("The request body is empty; a JSON object is expected.");
  Builder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return invalid("The request body is not acceptable JSON: " + builder.error() + ".");
  }
  return builder.take();
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace quire
