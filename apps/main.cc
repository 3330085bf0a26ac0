// The command line: flags and wiring only, one file per subcommand.
#include <cstdio>
#include <string>

#include <fmt/core.h>

#include "apps/commands.h"

namespace quire {

int report_error(const Error& error) {
  fmt::print(stderr, "quire: error: {}\n", error.message);
  switch (error.code) {
    case ErrorCode::kInvalid:
    case ErrorCode::kNotFound:
    case ErrorCode::kUnsupported:
    case ErrorCode::kTooLarge:
      return 2;
    case ErrorCode::kCancelled:
      return 130;
    default:
      return 1;
  }
}

}  // namespace quire

int main(int argc, char** argv) {
  CLI::App app{"Quire: serve large language models on this machine", "quire"};
  app.set_version_flag("--version", std::string("quire ") + QUIRE_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  quire::add_serve_command(app, &exit_code);
  quire::add_chat_command(app, &exit_code);
  quire::add_generate_command(app, &exit_code);
  quire::add_pull_command(app, &exit_code);
  quire::add_inspect_command(app, &exit_code);
  quire::add_build_command(app, &exit_code);
  quire::add_tokenize_command(app, &exit_code);
  quire::add_render_command(app, &exit_code);
  quire::add_bench_command(app, &exit_code);
  quire::add_eval_command(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  return exit_code;
}
