// quire bench: measures a model or this machine; one file per subcommand.
#include "apps/bench_support.h"
#include "apps/commands.h"

namespace quire {

void add_bench_command(CLI::App& app, int* exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Measure a model or this machine, with the answers checked");
  bench->require_subcommand(1);
  add_bench_latency_command(*bench, exit_code);
  add_bench_throughput_command(*bench, exit_code);
  add_bench_kernels_command(*bench, exit_code);
}

}  // namespace quire
