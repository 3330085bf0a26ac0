// quire inspect FILE_OR_NAME: what is in a checkpoint or an engine file, for people and, with --json, for
// programs.
#include <cstdio>
#include <memory>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/engine_start.h"
#include "loader/catalogue.h"
#include "loader/checkpoint.h"
#include "loader/show.h"
#include "loader/summary.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

struct InspectFlags {
  std::string model;
  bool json = false;
  bool tensors = false;
  bool verify = false;
};

std::string size_text(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} bytes", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  if (bytes < 10'000'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}

std::string count_text(std::int64_t count) {
  if (count < 1'000'000) return fmt::format("{}", count);
  if (count < 1'000'000'000) return fmt::format("{:.1f} M", static_cast<double>(count) / 1e6);
  return fmt::format("{:.2f} B", static_cast<double>(count) / 1e9);
}

// A file's own text on one line of a terminal.
std::string plain(const std::string& text) {
  const std::string in_quotes = shown(text);
  return in_quotes.substr(1, in_quotes.size() - 2);
}

std::string shape_text(const TensorView& tensor) {
  std::string out;
  for (const std::int64_t dim : tensor.shape) out += fmt::format("{}{}", out.empty() ? "" : " x ", dim);
  return out.empty() ? "scalar" : out;
}

template <typename T>
constexpr bool kIsList = false;
template <typename T>
constexpr bool kIsList<std::vector<T>> = true;

// Lists are given by kind and length: a vocabulary would drown the rest.
Json metadata_json(const MetadataValue& value) {
  return std::visit(
      [](const auto& held) -> Json {
        using T = std::decay_t<decltype(held)>;
        if constexpr (kIsList<T>) {
          using Item = typename T::value_type;
          const char* kind = std::is_same_v<Item, std::string> ? "string"
                             : std::is_same_v<Item, bool>      ? "bool"
                             : std::is_same_v<Item, double>    ? "float"
                                                               : "int";
          return Json{{"list_of", kind}, {"length", held.size()}};
        } else {
          return Json(held);
        }
      },
      value);
}

std::string metadata_text(const MetadataValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return shown(*text, 60);
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{:.7g}", *number);
  const Json json = metadata_json(value);
  if (!json.is_object()) return json.dump();
  return fmt::format("{} {} values", json["length"].get<std::size_t>(), json["list_of"].get<std::string>());
}

void print_json(const Checkpoint& checkpoint, const CheckpointSummary& summary, bool with_tensors) {
  Json out;
  out["name"] = checkpoint.name;
  out["format"] = checkpoint.format == CheckpointFormat::kGguf ? "gguf" : "safetensors";
  if (checkpoint.gguf_version != 0) out["gguf_version"] = checkpoint.gguf_version;
  out["architecture"] = summary.architecture;
  out["title"] = summary.title;
  out["num_parameters"] = summary.num_parameters;
  out["num_tensors"] = checkpoint.tensors->tensors().size();
  out["tensor_bytes"] = checkpoint.total_bytes;
  out["context_length"] = summary.context_length ? Json(*summary.context_length) : Json();
  out["tokenizer"] = summary.tokenizer.empty() ? Json() : Json(summary.tokenizer);
  out["vocabulary_size"] = summary.vocabulary_size ? Json(*summary.vocabulary_size) : Json();
  out["chat_template_bytes"] = summary.chat_template_bytes ? Json(*summary.chat_template_bytes) : Json();
  out["types"] = Json::array();
  for (const auto& use : summary.types) {
    out["types"].push_back(Json{{"type", use.type},
                                {"num_tensors", use.num_tensors},
                                {"num_values", use.num_values},
                                {"bytes", use.bytes}});
  }
  out["metadata"] = Json::object();
  for (const auto& [key, value] : checkpoint.metadata.values()) out["metadata"][key] = metadata_json(value);
  if (with_tensors) {
    out["tensors"] = Json::array();
    for (const TensorView& tensor : checkpoint.tensors->tensors()) {
      out["tensors"].push_back(Json{{"name", tensor.name},
                                    {"type", tensor_type_info(tensor.type).name},
                                    {"shape", tensor.shape},
                                    {"bytes", tensor.data.size()}});
    }
  }
  // A file's text may be no UTF-8; then the JSON still is.
  fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_text(const Checkpoint& checkpoint, const CheckpointSummary& summary, bool with_tensors) {
  const auto line = [](const char* what, const std::string& value) {
    fmt::print("{:<15} {}\n", what, value);
  };
  const auto or_none = [](const std::string& text) {
    return text.empty() ? std::string("none") : plain(text);
  };
  line("model", checkpoint.name + (summary.title.empty() ? "" : " (" + plain(summary.title) + ")"));
  line("format", checkpoint.format == CheckpointFormat::kGguf
                     ? fmt::format("GGUF version {}", checkpoint.gguf_version)
                     : std::string("safetensors"));
  line("architecture", or_none(summary.architecture));
  line("parameters", fmt::format("{} ({})", count_text(summary.num_parameters), summary.num_parameters));
  line("context length", summary.context_length ? fmt::format("{}", *summary.context_length) : "not given");
  line("tokenizer",
       or_none(summary.tokenizer) +
           (summary.vocabulary_size ? fmt::format(", {} tokens", *summary.vocabulary_size) : ""));
  line("chat template",
       summary.chat_template_bytes ? fmt::format("{} bytes", *summary.chat_template_bytes) : "none");
  line("tensors",
       fmt::format("{}, {}", checkpoint.tensors->tensors().size(), size_text(checkpoint.total_bytes)));
  for (const auto& use : summary.types) {
    fmt::print("  {:<13} {:>5} tensors  {:>10} values  {:>10}\n", use.type, use.num_tensors,
               count_text(use.num_values), size_text(use.bytes));
  }
  if (!checkpoint.metadata.values().empty()) fmt::print("metadata\n");
  for (const auto& [key, value] : checkpoint.metadata.values()) {
    fmt::print("  {} = {}\n", plain(key), metadata_text(value));
  }
  if (!with_tensors) return;
  fmt::print("tensors, outermost dimension first\n");
  for (const TensorView& tensor : checkpoint.tensors->tensors()) {
    fmt::print("  {:<40} {:<8} {:<20} {:>10}\n", plain(tensor.name), tensor_type_info(tensor.type).name,
               shape_text(tensor), size_text(tensor.data.size()));
  }
}

Json engine_json(const EngineFile& file, bool with_tensors) {
  const EngineTable& table = file.table();
  Json out{{"format", "engine"},
           {"format_version", kEngineFormatVersion},
           {"bytes", file.file_bytes()},
           {"quire_version", table.info.quire_version},
           {"packing", table.key.packing},
           {"weights_held", table.key.weights},
           {"needs_checkpoint", !table.checkpoint.has_value()},
           {"made_from", Json::array()},
           {"compute", table.info.compute},
           {"max_batch_size", table.info.max_batch_size},
           {"max_input_len", table.info.max_input_len},
           {"max_output_len", table.info.max_output_len},
           {"workspace_bytes", table.info.workspace_bytes},
           {"num_weights", table.weights.size()},
           {"tuning", engine_info_lines(table.info)}};
  for (const auto& source : table.key.files) out["made_from"].push_back(source.path);
  if (!with_tensors) return out;
  out["weights"] = Json::array();
  for (const EngineWeight& weight : table.weights) {
    std::uint64_t bytes = 0;
    for (const EngineArray& array : weight.arrays) bytes += array.bytes;
    Json item{{"name", weight.name}, {"kind", weight.kind}, {"bytes", bytes}};
    for (const auto& [name, value] : weight.numbers) item[name] = value;
    out["weights"].push_back(std::move(item));
  }
  return out;
}

Status inspect_engine(const std::string& path, const InspectFlags& flags) {
  QUIRE_TRY(const auto file, EngineFile::open(path));
  if (flags.verify) {
    ThreadPool pool(detect_cpu_budget().num_usable);
    QUIRE_RETURN_IF_ERROR(file->verify(pool));
  }
  Json out = engine_json(*file, flags.tensors);
  if (flags.verify) out["verified"] = true;
  if (flags.json) {
    fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
    return {};
  }
  for (const auto& [key, value] : out.items()) {
    if (!value.is_array()) {
      fmt::print("{:<18} {}\n", key, plain(value.is_string() ? value.get<std::string>() : value.dump()));
      continue;
    }
    for (const Json& line : value) {
      const std::string text = line.is_string() ? line.get<std::string>()
                                                : line.dump(-1, ' ', false, Json::error_handler_t::replace);
      fmt::print("{:<18} {}\n", key, plain(text));
    }
  }
  return {};
}

Status inspect(const InspectFlags& flags) {
  QUIRE_TRY(const std::string engine_path, engine_file_of({}, flags.model));
  if (!engine_path.empty()) return inspect_engine(engine_path, flags);
  if (flags.verify)
    return invalid("--verify is for engine files; a checkpoint has no checksums of its own", "verify");
  QUIRE_TRY(const std::string path, resolve_model(flags.model));
  QUIRE_TRY(const auto checkpoint, open_checkpoint(path, /*allow_no_tensors=*/true));
  QUIRE_TRY(const CheckpointSummary summary, summarize(*checkpoint));
  if (flags.json) {
    print_json(*checkpoint, summary, flags.tensors);
  } else {
    print_text(*checkpoint, summary, flags.tensors);
  }
  return {};
}

}  // namespace

void add_inspect_command(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command =
      app.add_subcommand("inspect", "Show what is in a model: architecture, tensors, tokenizer");
  command
      ->add_option("model", flags->model,
                   "GGUF file, checkpoint folder, engine file, or name of an installed model")
      ->required();
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->add_flag("--verify", flags->verify, "Compare the data of an engine file with its checksums");
  command->add_flag("--tensors", flags->tensors, "Also list every tensor");
  command->callback([flags, exit_code] {
    const Status status = inspect(*flags);
    *exit_code = status.ok() ? 0 : report_error(status.error());
  });
}

}  // namespace quire
