// Purpose: the table of an engine file as JSON. See engine_format.h. Every field is checked for its type: the
// text may come from anywhere.
#include <limits>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "model/engine_format.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

Json array_json(const EngineArray& array) {
  return Json::array({array.name, array.offset, array.bytes, array.checksum});
}
Json arrays_json(const std::vector<EngineArray>& arrays) {
  Json out = Json::array();
  for (const EngineArray& array : arrays) out.push_back(array_json(array));
  return out;
}

Json key_json(const EngineKey& key) {
  Json files = Json::array();
  for (const auto& [path, identity] : key.files) {
    files.push_back({{"path", path},
                     {"bytes", identity.bytes},
                     {"mtime_ns", identity.mtime_ns},
                     {"inode", identity.inode},
                     {"device", identity.device}});
  }
  return {{"packing", key.packing}, {"weights", key.weights}, {"files", files}, {"content", key.content}};
}

Json info_json(const EngineInfo& info) {
  Json out = {{"quire_version", info.quire_version},
              {"compute", info.compute},
              {"dtype", info.dtype},
              {"max_batch_size", info.max_batch_size},
              {"max_input_len", info.max_input_len},
              {"max_output_len", info.max_output_len},
              {"workspace_bytes", info.workspace_bytes}};
  if (!info.tuning.has_value()) return out;
  out["tuning"] = {{"threads", info.tuned_threads},
                   {"panel_rows", info.tuning->panel_rows},
                   {"parts_per_thread", info.tuning->parts_per_thread},
                   {"min_part_bytes", info.tuning->min_part_bytes},
                   {"max_part_bytes", info.tuning->max_part_bytes},
                   {"measurements", Json::array()}};
  for (const auto& measured : info.measurements) {
    out["tuning"]["measurements"].push_back({{"what", measured.what},
                                             {"num_tokens", measured.num_tokens},
                                             {"default_ms", measured.default_ms},
                                             {"tuned_ms", measured.tuned_ms}});
  }
  return out;
}

// Reads fields by name; ok() turns false at the first that is missing or of another type.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json), ok_(json.is_object()) {}
  bool ok() const { return ok_; }

  std::string text(const char* name) {
    const Json* value = find(name);
    if (value == nullptr || !value->is_string()) return fail<std::string>();
    return value->get<std::string>();
  }
  template <typename T>
  T integer(const char* name) {
    const Json* value = find(name);
    if (value == nullptr || !value->is_number_integer()) return fail<T>();
    if (std::is_unsigned_v<T> && !value->is_number_unsigned()) return fail<T>();
    return value->get<T>();
  }
  double number(const char* name) {
    const Json* value = find(name);
    return value == nullptr || !value->is_number() ? fail<double>() : value->get<double>();
  }
  // An empty list if it is none.
  const Json& list(const char* name) {
    static const Json kEmpty = Json::array();
    const Json* value = find(name);
    if (value != nullptr && value->is_array()) return *value;
    ok_ = false;
    return kEmpty;
  }
  const Json* optional(const char* name) const {
    return ok_ && json_.contains(name) ? &json_[name] : nullptr;
  }

 private:
  const Json* find(const char* name) const { return optional(name); }
  template <typename T>
  T fail() {
    ok_ = false;
    return T{};
  }
  const Json& json_;
  bool ok_;
};

bool read_arrays(const Json& json, std::vector<EngineArray>* out) {
  for (const Json& item : json) {
    if (!item.is_array() || item.size() != 4 || !item[0].is_string() || !item[1].is_number_unsigned() ||
        !item[2].is_number_unsigned() || !item[3].is_number_unsigned()) {
      return false;
    }
    out->push_back({item[0].get<std::string>(), item[1].get<std::uint64_t>(), item[2].get<std::uint64_t>(),
                    item[3].get<std::uint64_t>()});
  }
  return true;
}

bool read_key(const Json& json, EngineKey* out) {
  Fields fields(json);
  out->packing = fields.text("packing");
  out->weights = fields.text("weights");
  out->content = fields.text("content");
  for (const Json& item : fields.list("files")) {
    Fields file(item);
    EngineKey::Source source;
    source.path = file.text("path");
    source.identity.bytes = file.integer<std::uint64_t>("bytes");
    source.identity.mtime_ns = file.integer<std::int64_t>("mtime_ns");
    source.identity.inode = file.integer<std::uint64_t>("inode");
    source.identity.device = file.integer<std::uint64_t>("device");
    if (!file.ok()) return false;
    out->files.push_back(std::move(source));
  }
  return fields.ok();
}

bool read_info(const Json& json, EngineInfo* out) {
  Fields fields(json);
  out->quire_version = fields.text("quire_version");
  out->compute = fields.text("compute");
  out->dtype = fields.text("dtype");
  out->max_batch_size = fields.integer<std::int64_t>("max_batch_size");
  out->max_input_len = fields.integer<std::int64_t>("max_input_len");
  out->max_output_len = fields.integer<std::int64_t>("max_output_len");
  out->workspace_bytes = fields.integer<std::uint64_t>("workspace_bytes");
  const Json* tuning_json = fields.optional("tuning");
  if (tuning_json == nullptr) return fields.ok();
  Fields tuning(*tuning_json);
  CpuTuning chosen;
  out->tuned_threads = tuning.integer<int>("threads");
  chosen.panel_rows = tuning.integer<std::int64_t>("panel_rows");
  chosen.parts_per_thread = tuning.integer<std::int64_t>("parts_per_thread");
  chosen.min_part_bytes = tuning.integer<std::int64_t>("min_part_bytes");
  chosen.max_part_bytes = tuning.integer<std::int64_t>("max_part_bytes");
  out->tuning = chosen;
  for (const Json& item : tuning.list("measurements")) {
    Fields measured(item);
    out->measurements.push_back({measured.text("what"), measured.integer<std::int64_t>("num_tokens"),
                                 measured.number("default_ms"), measured.number("tuned_ms")});
    if (!measured.ok()) return false;
  }
  return tuning.ok() && fields.ok();
}

bool read_weight(const Json& json, EngineWeight* out) {
  Fields fields(json);
  out->name = fields.text("name");
  out->kind = fields.text("kind");
  out->text = fields.text("text");
  for (const Json& item : fields.list("numbers")) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number_integer())
      return false;
    out->numbers.emplace_back(item[0].get<std::string>(), item[1].get<std::int64_t>());
  }
  return read_arrays(fields.list("arrays"), &out->arrays) && fields.ok();
}

bool read_checkpoint(const Json& json, EngineCheckpoint* out) {
  Fields fields(json);
  out->name = fields.text("name");
  const std::string format = fields.text("format");
  if (format != "gguf" && format != "safetensors") return false;
  out->format = format == "gguf" ? CheckpointFormat::kGguf : CheckpointFormat::kSafetensors;
  out->gguf_version = fields.integer<std::uint32_t>("gguf_version");
  out->total_bytes = fields.integer<std::uint64_t>("total_bytes");
  for (const Json& item : fields.list("tensors")) {
    Fields tensor(item);
    EngineCheckpoint::Tensor read;
    read.name = tensor.text("name");
    const auto type = tensor.integer<std::uint32_t>("type");
    if (type > static_cast<std::uint32_t>(TensorType::kQ6_K)) return false;
    read.type = static_cast<TensorType>(type);
    for (const Json& dim : tensor.list("shape")) {
      if (!dim.is_number_integer()) return false;
      read.shape.push_back(dim.get<std::int64_t>());
    }
    if (!tensor.ok()) return false;
    out->tensors.push_back(std::move(read));
  }
  return fields.ok();
}

bool read_table(const Json& json, EngineTable* out) {
  Fields fields(json);
  const Json* key = fields.optional("key");
  const Json* info = fields.optional("info");
  if (key == nullptr || info == nullptr || !read_key(*key, &out->key) || !read_info(*info, &out->info))
    return false;
  for (const Json& item : fields.list("weights")) {
    if (!read_weight(item, &out->weights.emplace_back())) return false;
  }
  if (!read_arrays(fields.list("vectors"), &out->vectors) || !read_arrays(fields.list("texts"), &out->texts))
    return false;
  if (const Json* checkpoint = fields.optional("checkpoint")) {
    out->checkpoint.emplace();
    if (!read_checkpoint(*checkpoint, &*out->checkpoint)) return false;
  }
  return fields.ok();
}

}  // namespace

std::string engine_table_to_json(const EngineTable& table) {
  Json out;
  out["key"] = key_json(table.key);
  out["info"] = info_json(table.info);
  out["weights"] = Json::array();
  for (const EngineWeight& weight : table.weights) {
    Json numbers = Json::array();
    for (const auto& [name, value] : weight.numbers) numbers.push_back(Json::array({name, value}));
    out["weights"].push_back({{"name", weight.name},
                              {"kind", weight.kind},
                              {"text", weight.text},
                              {"numbers", std::move(numbers)},
                              {"arrays", arrays_json(weight.arrays)}});
  }
  out["vectors"] = arrays_json(table.vectors);
  out["texts"] = arrays_json(table.texts);
  if (table.checkpoint.has_value()) {
    const EngineCheckpoint& checkpoint = *table.checkpoint;
    Json tensors = Json::array();
    for (const auto& tensor : checkpoint.tensors) {
      tensors.push_back({{"name", tensor.name},
                         {"type", static_cast<std::uint32_t>(tensor.type)},
                         {"shape", tensor.shape}});
    }
    out["checkpoint"] = {{"name", checkpoint.name},
                         {"format", checkpoint.format == CheckpointFormat::kGguf ? "gguf" : "safetensors"},
                         {"gguf_version", checkpoint.gguf_version},
                         {"total_bytes", checkpoint.total_bytes},
                         {"tensors", std::move(tensors)}};
  }
  // Names come from files and may be no UTF-8.
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<EngineTable> engine_table_from_json(std::string_view json, const std::string& file_name) {
  bool too_deep = false;
  const auto limit = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > 16;
    return !too_deep;
  };
  const Json root = Json::parse(json.begin(), json.end(), limit, /*allow_exceptions=*/false);
  EngineTable table;
  if (root.is_discarded() || too_deep || !read_table(root, &table)) {
    return invalid(
        fmt::format("{}: the table of the engine file cannot be read: the file is damaged", file_name));
  }
  return table;
}

}  // namespace quire
