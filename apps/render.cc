// quire render TEMPLATE --context JSON_FILE|- [--now TIME]: what a chat template makes of a context.
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "text/chat_template.h"

namespace quire {
namespace {

struct RenderFlags {
  std::string template_path;
  std::string context_path;
  std::string now;
};

Result<std::string> read_all(const std::string& path, const char* what) {
  std::string text;
  bool failed = false;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
    failed = std::cin.bad();
  } else {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream buffer;
    // An empty file leaves the failbit of buffer set: only file says whether reading worked.
    if (file) buffer << file.rdbuf();
    failed = !file || file.bad();
    text = buffer.str();
  }
  if (failed)
    return make_error(ErrorCode::kNotFound, "cannot read the " + std::string(what) + " '" + path + "'");
  return text;
}

// "2026-12-01 08:30:00" or "2026-12-01T08:30:00", local time.
Result<std::int64_t> parse_time(const std::string& text) {
  for (const char* format : {"%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"}) {
    std::tm time{};
    const char* end = strptime(text.c_str(), format, &time);
    if (end == nullptr || *end != '\0') continue;
    time.tm_isdst = -1;
    return static_cast<std::int64_t>(std::mktime(&time));
  }
  return invalid("--now '" + text + "' is not a time such as \"2026-12-01 08:30:00\"", "now");
}

int render(const RenderFlags& flags) {
  if (flags.template_path == "-" && flags.context_path == "-") {
    return report_error(invalid("the template and the context cannot both come from standard input"));
  }
  std::optional<std::int64_t> now;
  if (!flags.now.empty()) {
    auto seconds = parse_time(flags.now);
    if (!seconds.ok()) return report_error(seconds.error());
    now = *seconds;
  }
  auto source = read_all(flags.template_path, "template");
  if (!source.ok()) return report_error(source.error());
  auto context_text = read_all(flags.context_path, "context");
  if (!context_text.ok()) return report_error(context_text.error());
  const auto context = nlohmann::ordered_json::parse(*context_text, nullptr, /*allow_exceptions=*/false);
  if (!context.is_object()) {
    return report_error(invalid("the context '" + flags.context_path + "' is not a JSON object"));
  }
  auto chat_template = ChatTemplate::parse(std::move(*source));
  if (!chat_template.ok()) {
    report_error(chat_template.error());
    return 1;
  }
  const auto pieces = (*chat_template)->render(context, now);
  if (!pieces.ok()) {
    report_error(pieces.error());
    return 1;
  }
  for (const PromptPiece& piece : *pieces) std::fwrite(piece.text.data(), 1, piece.text.size(), stdout);
  if (std::fflush(stdout) != 0)
    return report_error(make_error(ErrorCode::kIo, "cannot write the rendered text"));
  return 0;
}

}  // namespace

void add_render_command(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<RenderFlags>();
  CLI::App* command = app.add_subcommand("render", "Print what a chat template makes of a context");
  command->add_option("template", flags->template_path, "Template file, or - for standard input")->required();
  command->add_option("--context", flags->context_path, "JSON file with messages and other variables, or -")
      ->required();
  command->add_option("--now", flags->now, "Local time for strftime_now, e.g. \"2026-12-01 08:30:00\"");
  command->callback([flags, exit_code] { *exit_code = render(*flags); });
}

}  // namespace quire
