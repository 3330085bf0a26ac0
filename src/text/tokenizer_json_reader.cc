#include "text/tokenizer_json_reader.h"

#include <fmt/core.h>

namespace quire {

namespace {

using nlohmann::json;

// tokenizer.json files nest about ten levels.
constexpr std::size_t kMaxDepth = 64;

// A SAX handler that builds a DOM, except under model.vocab and model.merges when `out` is given.
class Handler {
 public:
  explicit Handler(TokenizerJson* out) : out_(out) {}

  bool null() { return table_ == Table::kNone ? add(json(nullptr)) : bad_entry("null"); }
  bool boolean(bool value) { return table_ == Table::kNone ? add(json(value)) : bad_entry("a boolean"); }
  bool number_integer(json::number_integer_t value) {
    return table_ == Table::kNone ? add(json(value)) : table_number(static_cast<double>(value), value);
  }
  bool number_unsigned(json::number_unsigned_t value) {
    if (table_ == Table::kNone) return add(json(value));
    const auto limited = value > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(value);
    return table_number(static_cast<double>(value), limited);
  }
  bool number_float(json::number_float_t value, const std::string&) {
    if (table_ == Table::kNone) return add(json(value));
    if (table_ == Table::kVocabObject) return bad_entry("a fraction for an id");
    return table_number(value, 0);
  }
  bool string(std::string& value) {
    switch (table_) {
      case Table::kNone:
        return add(json(std::move(value)));
      case Table::kMerges:
        if (depth_in_table_ == 1) return merge_text(value);
        if (num_strings_ >= 2) return bad_entry("a merge of more than two pieces");
        if (value.empty()) return bad_entry("not two pieces");
        out_->merges.push_back(value);
        ++num_strings_;
        return true;
      case Table::kVocabList:
        if (depth_in_table_ != 2 || num_strings_ > 0) return bad_entry("a string where a score belongs");
        out_->pieces.push_back(value);
        ++num_strings_;
        return true;
      case Table::kVocabObject:
        return bad_entry("a string for an id");
    }
    return false;
  }
  bool binary(json::binary_t&) { return bad_entry("binary data"); }

  bool start_object(std::size_t) {
    if (table_ != Table::kNone) return bad_entry("an object");
    if (at_table("vocab")) {
      return open_table(Table::kVocabObject);
    }
    return open(json::object());
  }
  bool key(std::string& name) {
    if (table_ == Table::kVocabObject) {
      piece_.swap(name);
    } else {
      keys_.back() = std::move(name);
    }
    return true;
  }
  bool end_object() {
    if (table_ == Table::kVocabObject) {
      table_ = Table::kNone;
      return true;
    }
    return close();
  }
  bool start_array(std::size_t) {
    if (table_ == Table::kVocabObject) return bad_entry("an array for an id");
    if (table_ != Table::kNone) {
      if (++depth_in_table_ > 2) return bad_entry("an array within an entry");
      num_strings_ = 0;
      has_score_ = false;
      return true;
    }
    if (at_table("vocab") || at_table("merges")) {
      return open_table(keys_.back() == "vocab" ? Table::kVocabList : Table::kMerges);
    }
    return open(json::array());
  }
  bool end_array() {
    if (table_ == Table::kNone) return close();
    if (--depth_in_table_ == 0) {
      table_ = Table::kNone;
      return true;
    }
    if (table_ == Table::kMerges) {
      if (num_strings_ != 2) return bad_entry("not two pieces");
    } else {
      if (num_strings_ != 1 || !has_score_) return bad_entry("not a piece and a score");
    }
    num_strings_ = 0;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const json::exception& error) {
    error_ = fmt::format("is not JSON (at byte {}): {}", position, error.what());
    return false;
  }

  const std::string& error() const { return error_; }
  json take() { return std::move(root_); }

 private:
  enum class Table { kNone, kVocabObject, kVocabList, kMerges };

  bool at_table(std::string_view name) const {
    return out_ != nullptr && stack_.size() == 2 && keys_.size() == 2 && keys_[0] == "model" &&
           keys_[1] == name && stack_[1]->is_object();
  }
  // Of equal keys the last counts, here too.
  bool open_table(Table table) {
    table_ = table;
    depth_in_table_ = 1;
    num_strings_ = 0;
    if (table == Table::kMerges) {
      out_->merges = StringList();
      out_->has_merges = true;
    } else {
      out_->pieces = StringList();
      out_->ids.clear();
      out_->scores.clear();
      out_->vocab_is_list = table == Table::kVocabList;
    }
    return true;
  }
  // Entries are counted from 0; what this one has given so far is in the lists already.
  bool bad_entry(std::string_view what) {
    if (table_ == Table::kMerges) {
      error_ =
          fmt::format("has {} in model.merges, entry {}", what, (out_->merges.size() - num_strings_) / 2);
    } else if (table_ == Table::kVocabObject) {
      error_ = fmt::format("has {} in model.vocab, at \"{}\"", what, piece_);
    } else {
      error_ =
          fmt::format("has {} in model.vocab, entry {}", what, out_ ? out_->pieces.size() - num_strings_ : 0);
    }
    return false;
  }
  bool table_number(double value, std::int64_t integer) {
    if (table_ == Table::kVocabObject) {
      out_->pieces.push_back(piece_);
      out_->ids.push_back(integer);
      return true;
    }
    if (table_ != Table::kVocabList || depth_in_table_ != 2 || num_strings_ == 0 || has_score_) {
      return bad_entry("a number where none belongs");
    }
    out_->scores.push_back(value);
    has_score_ = true;
    return true;
  }
  bool merge_text(const std::string& text) {
    const std::size_t space = text.find(' ');
    if (space == 0 || space == std::string::npos || space + 1 == text.size() ||
        text.find(' ', space + 1) != std::string::npos) {
      return bad_entry(fmt::format("\"{}\" (not two pieces with a space between)", text));
    }
    out_->merges.push_back(std::string_view(text).substr(0, space));
    out_->merges.push_back(std::string_view(text).substr(space + 1));
    return true;
  }
  json* place(json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    json& slot = parent[keys_.back()];  // of equal keys the last counts
    slot = std::move(value);
    return &slot;
  }
  bool add(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json value) {
    if (stack_.size() >= kMaxDepth) {
      error_ = fmt::format("nests deeper than {} levels", kMaxDepth);
      return false;
    }
    stack_.push_back(place(std::move(value)));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    stack_.pop_back();
    keys_.pop_back();
    return true;
  }

  TokenizerJson* out_;
  json root_;
  std::vector<json*> stack_;
  std::vector<std::string> keys_;  // of each open object the current key
  Table table_ = Table::kNone;
  int depth_in_table_ = 0;
  std::string piece_;
  std::size_t num_strings_ = 0;  // in this entry of a table
  bool has_score_ = false;
  std::string error_;
};

Status parse(std::string_view text, const std::string& where, Handler& handler) {
  if (json::sax_parse(text, &handler)) return {};
  return invalid(fmt::format("{} {}", where, handler.error()));
}

}  // namespace

Result<TokenizerJson> read_tokenizer_json(std::string_view text, const std::string& where) {
  TokenizerJson out;
  Handler handler(&out);
  QUIRE_RETURN_IF_ERROR(parse(text, where, handler));
  out.rest = handler.take();
  if (!out.rest.is_object()) return invalid(fmt::format("{} is not a JSON object", where));
  return out;
}

Result<nlohmann::json> read_json(std::string_view text, const std::string& where) {
  Handler handler(nullptr);
  QUIRE_RETURN_IF_ERROR(parse(text, where, handler));
  return handler.take();
}

}  // namespace quire
