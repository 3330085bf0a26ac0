// Purpose: one function per subcommand of `quire`; each declares its flags and what runs when it is chosen.
// Exit codes: 0 success, 1 the work failed, 2 the command line or an input is wrong, 130 interrupted.
#pragma once

#include <CLI/CLI.hpp>

#include "base/result.h"

namespace quire {

// Each adds one subcommand; its callback stores the exit code in *exit_code.
void add_serve_command(CLI::App& app, int* exit_code);
void add_chat_command(CLI::App& app, int* exit_code);
void add_generate_command(CLI::App& app, int* exit_code);
void add_pull_command(CLI::App& app, int* exit_code);
void add_inspect_command(CLI::App& app, int* exit_code);
void add_build_command(CLI::App& app, int* exit_code);
void add_tokenize_command(CLI::App& app, int* exit_code);
void add_render_command(CLI::App& app, int* exit_code);
void add_bench_command(CLI::App& app, int* exit_code);
void add_eval_command(CLI::App& app, int* exit_code);

// Prints "quire: error: MESSAGE" to stderr and returns the exit code of this kind of error (2 for bad input,
// else 1).
int report_error(const Error& error);

}  // namespace quire
