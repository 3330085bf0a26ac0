// quire pull NAME: fetches a model of the catalogue or of the hub and installs it.
#include "loader/pull.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/progress.h"
#include "loader/catalogue.h"
#include "loader/install.h"
#include "loader/show.h"
#include "net/http_client.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

std::atomic<bool> cancelled{false};

// The first Ctrl-C asks the pull to clean up; a second one ends the program at once.
extern "C" void on_pull_signal(int number) {
  cancelled.store(true);
  std::signal(number, SIG_DFL);
}

struct PullFlags {
  std::string name;
  std::string revision = "main";
  bool force = false;
  bool json = false;
  bool list = false;
};

Status fetch_over_http(const FetchRequest& request, const std::function<bool(const FetchHead&)>& on_head,
                       const std::function<bool(std::string_view)>& on_data) {
  HttpGet get;
  get.url = request.url;
  get.bearer_token = request.bearer_token;
  get.offset = request.offset;
  get.user_agent = "quire/" QUIRE_VERSION;
  get.cancelled = &cancelled;
  return http_get(
      get,
      [&](const HttpHead& head) {
        return on_head({head.status, head.headers});
      },
      on_data);
}

Status print_list(bool json) {
  QUIRE_TRY(const Catalogue catalogue, Catalogue::load());
  Json out = Json::array();
  for (const CatalogueEntry& entry : catalogue.entries()) {
    QUIRE_TRY(const std::string path, catalogue_model_path(entry.name));
    std::error_code error;
    const bool installed = std::filesystem::is_regular_file(path, error);
    if (json) {
      out.push_back(Json{{"name", entry.name},
                         {"family", entry.family},
                         {"description", entry.description},
                         {"licence", entry.licence},
                         {"bytes", entry.bytes},
                         {"sha256", entry.sha256},
                         {"default", entry.is_default},
                         {"installed", installed}});
    } else {
      fmt::print("{:<20} {:>9}  {:<11} {:<10} {}{}\n", entry.name, bytes_text(entry.bytes), entry.licence,
                 installed ? "installed" : "", entry.description, entry.is_default ? " (default)" : "");
    }
  }
  if (json) fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
  return {};
}

Result<PullOutcome> pull_named(const PullFlags& flags, const PullOptions& options) {
  if (is_hub_spec(flags.name)) return pull_hub_model(flags.name, options);
  QUIRE_TRY(const Catalogue catalogue, Catalogue::load());
  const CatalogueEntry* entry = catalogue.find(flags.name);
  if (entry == nullptr) {
    return make_error(
        ErrorCode::kNotFound,
        fmt::format("there is no model {}; known names: {}; a repository of the hub is written ORG/NAME",
                    shown(flags.name), catalogue.names()));
  }
  return pull_catalogue_model(*entry, options);
}

Status pull(const PullFlags& flags) {
  if (flags.list) return print_list(flags.json);
  if (flags.name.empty()) {
    return invalid(
        "which model? `quire pull --list` shows the names; a repository of the hub is written ORG/NAME");
  }
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, &on_pull_signal);
  // Writing past a limit on file sizes, or to a closed pipe, is an error that we report, not a death.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  ProgressLine progress(flags.json);
  PullOptions options;
  options.force = flags.force;
  options.revision = flags.revision;
  options.cancelled = &cancelled;
  options.on_progress = [&](const PullProgress& at) { progress.update(at.what, at.done, at.total); };
  options.on_note = [&](const std::string& text) { progress.note(text); };
  options.fetch = fetch_over_http;
  const auto outcome = pull_named(flags, options);
  progress.finish();
  if (!outcome.ok()) {
    if (flags.json) {
      fmt::print("{}\n", Json{{"status", "failed"}, {"error", outcome.error().message}}.dump(
                             -1, ' ', false, Json::error_handler_t::replace));
    }
    return outcome.error();
  }
  if (flags.json) {
    Json out{{"status", outcome->already_installed ? "already-installed" : "installed"},
             {"name", outcome->name},
             {"path", outcome->path},
             {"bytes", outcome->bytes}};
    if (!outcome->sha256.empty()) out["sha256"] = outcome->sha256;
    fmt::print("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{} {} ({}): serve it with `quire serve {}`\n", outcome->name,
               outcome->already_installed ? "is already installed" : "is installed",
               bytes_text(outcome->bytes), outcome->name);
  }
  return {};
}

}  // namespace

void add_pull_command(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<PullFlags>();
  CLI::App* command = app.add_subcommand("pull", "Fetch a model and install it");
  command->add_option(
      "name", flags->name,
      "Name of the catalogue, or a repository of the hub: ORG/NAME, ORG/NAME:FILE.gguf, ORG/NAME:TAG");
  command->add_option("--revision", flags->revision, "Branch, tag or commit of the repository")
      ->capture_default_str();
  command->add_flag("--force", flags->force, "Fetch again what is installed");
  command->add_flag("--json", flags->json, "Print one JSON object, no progress");
  command->add_flag("--list", flags->list, "Show the catalogue");
  command->callback([flags, exit_code] {
    const Status status = pull(*flags);
    *exit_code = status.ok() ? 0 : report_error(status.error());
  });
}

}  // namespace quire
