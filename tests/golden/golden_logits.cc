// Compares the logits of a real model with the reference answers of tests/data/golden/logits.jsonl, through
// the loader, the quantized layouts, the kernels and the decoder, without engine or server.
//
//   golden_logits MODEL_FILE NAME --compute f32|bf16|int8 [--backend cpu|ref] [--threads N] [--chunk N]
//                 [--max-top5 X] [--max-mean X] [--min-agree X]
//
// Prints the largest difference of any top-5 logprob, the mean absolute difference of the best logprob, and
// how often the best token agrees. Exit code 1 if one is beyond its bound.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "model/model.h"

namespace quire {
namespace {

struct Differences {
  double max_top5 = 0;
  double sum_best = 0;
  std::int64_t num_positions = 0;
  std::int64_t num_agree = 0;
};

// One sequence in blocks of 16, computed in chunks.
Batch chunk_of(const std::vector<std::int32_t>& ids, std::size_t begin, std::size_t end) {
  Batch batch;
  for (std::size_t i = begin; i < end; ++i) {
    batch.token_ids.push_back(ids[i]);
    batch.positions.push_back(static_cast<std::int32_t>(i));
    batch.slots.push_back(static_cast<std::int32_t>(i));
    batch.logit_rows.push_back(static_cast<std::int32_t>(i - begin));
  }
  batch.query_starts = {0, static_cast<std::int32_t>(end - begin)};
  batch.context_lens = {static_cast<std::int32_t>(end)};
  batch.block_table_stride = static_cast<std::int64_t>(ids.size() + 15) / 16;
  batch.block_tables.resize(static_cast<std::size_t>(batch.block_table_stride));
  std::iota(batch.block_tables.begin(), batch.block_tables.end(), 0);
  return batch;
}

void compare_row(const float* logits, std::int64_t vocab, const nlohmann::json& top5,
                 Differences* differences) {
  double max = logits[0];
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < vocab; ++i) {
    if (logits[i] > max) {
      max = logits[i];
      best = i;
    }
  }
  double sum = 0;
  for (std::int64_t i = 0; i < vocab; ++i) sum += std::exp(logits[i] - max);
  const double log_sum = max + std::log(sum);
  for (const auto& entry : top5) {
    const double difference =
        std::abs(logits[entry[0].get<std::int64_t>()] - log_sum - entry[1].get<double>());
    if (!(difference <= differences->max_top5)) differences->max_top5 = difference;  // NaN counts
  }
  differences->sum_best +=
      std::abs(logits[top5[0][0].get<std::int64_t>()] - log_sum - top5[0][1].get<double>());
  differences->num_positions += 1;
  differences->num_agree += best == top5[0][0].get<std::int64_t>();
}

int run(int argc, char** argv) {
  CLI::App app{"Compare logits with reference answers"};
  std::string path, name, golden, compute = "f32", backend_name = "cpu", kv = "auto", dtype = "auto";
  BackendOptions options;
  std::size_t chunk = 512;
  double max_top5 = 0, max_mean = 0, min_agree = 0;
  app.add_option("model", path)->required();
  app.add_option("name", name)->required();
  app.add_option("--golden", golden)->required();
  app.add_option("--compute", compute)->check(CLI::IsMember({"f32", "bf16", "int8"}));
  app.add_option("--backend", backend_name);
  app.add_option("--isa", options.isa);
  app.add_option("--kv", kv)->check(CLI::IsMember({"auto", "f32", "f16", "bf16"}));
  app.add_option("--dtype", dtype)->check(CLI::IsMember({"auto", "bf16"}));
  app.add_option("--threads", options.num_threads);
  app.add_option("--chunk", chunk)->check(CLI::PositiveNumber);
  app.add_option("--max-top5", max_top5);
  app.add_option("--max-mean", max_mean);
  app.add_option("--min-agree", min_agree);
  CLI11_PARSE(app, argc, argv);
  options.compute = compute == "f32"    ? ComputeMode::kF32
                    : compute == "bf16" ? ComputeMode::kBf16
                                        : ComputeMode::kInt8;
  LoadOptions load;
  if (dtype == "bf16") load.weight_dtype = DType::kBf16;
  // The same rule as `quire serve --kv-cache-dtype auto`.
  DType kv_dtype = compute == "f32" ? DType::kF32 : DType::kF16;
  if (kv == "f32") kv_dtype = DType::kF32;
  if (kv == "f16") kv_dtype = DType::kF16;
  if (kv == "bf16") kv_dtype = DType::kBf16;

  auto fail = [](const Error& error) {
    fmt::print(stderr, "golden_logits: {}\n", error.message);
    return 2;
  };
  auto checkpoint = open_checkpoint(path);
  if (!checkpoint.ok()) return fail(checkpoint.error());
  auto backend = make_backend(backend_name, options);
  if (!backend.ok()) return fail(backend.error());
  auto model = load_model(**checkpoint, **backend, load);
  if (!model.ok()) return fail(model.error());
  if (auto status = (*model)->allocate_kv(64, 16, kv_dtype); !status.ok()) return fail(status.error());

  Differences all;
  const auto start = std::chrono::steady_clock::now();
  std::ifstream file(golden);
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row["model"] != name) continue;
    const auto ids = row["ids"].get<std::vector<std::int32_t>>();
    for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
      const Batch batch = chunk_of(ids, begin, std::min(begin + chunk, ids.size()));
      const Logits logits = (*model)->forward(batch);
      for (std::int64_t i = 0; i < logits.num_rows; ++i) {
        const std::size_t position = begin + static_cast<std::size_t>(i);
        if (position < row["top5"].size()) {
          compare_row(logits.row(i), logits.vocab_size, row["top5"][position], &all);
        }
      }
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (all.num_positions == 0) return fail(invalid(name + " is not in " + golden));
  const double mean = all.sum_best / static_cast<double>(all.num_positions);
  const double agree = static_cast<double>(all.num_agree) / static_cast<double>(all.num_positions);
  fmt::print("{} {} {}: {} positions in {:.1f} s, top-5 max {:.5f}, best mean {:.5f}, agree {:.4f}\n", name,
             backend_name, compute, all.num_positions, seconds, all.max_top5, mean, agree);
  const bool within = (max_top5 == 0 || all.max_top5 <= max_top5) && (max_mean == 0 || mean <= max_mean) &&
                      agree >= min_agree;
  return within ? 0 : 1;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::run(argc, argv);
}
