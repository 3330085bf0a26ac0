// quire eval ppl MODEL --text FILE: perplexity of a text in sliding windows, each token scored once, as
// Hugging Face describes it for models of a fixed context (huggingface.co/docs/transformers/perplexity);
// beside a baseline, the difference token by token, whose error is far smaller than that of two perplexities.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/app_support.h"
#include "apps/bench_support.h"
#include "apps/commands.h"
#include "apps/interrupt.h"
#include "loader/sha256.h"
#include "text/utf8.h"

namespace quire {
namespace {

constexpr std::int64_t kDefaultContext = 2048;
constexpr const char* kLogprobFormat = "quire logprobs 1";

struct PplFlags {
  ModelFlags model;
  std::string text;
  std::int64_t context = 0;
  std::int64_t stride = 0;
  std::int64_t max_tokens = 0;
  std::string compare_kv_dtype;
  std::string save;
  std::string against;
  bool json = false;
};

// logprobs[i] is of token i + 1, given tokens before it.
struct Scores {
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;
  std::string model;
  std::string settings;  // for people: compute mode, cache type
  std::int64_t context = 0;
  std::int64_t stride = 0;
  std::int64_t num_computed = 0;  // tokens through the model, overlaps included
  double seconds = 0;

  std::string ids_hash() const {
    Sha256 hash;
    hash.update(ids.data(), ids.size() * sizeof(ids[0]));
    return hash.finish();
  }
};

struct Mean {
  double value = 0;
  double error = 0;  // standard error, the tokens taken as independent
};
template <typename Get>
Mean mean_of(std::size_t count, Get get) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += get(i);
  Mean mean;
  mean.value = sum / static_cast<double>(count);
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) squares += (get(i) - mean.value) * (get(i) - mean.value);
  if (count > 1)
    mean.error = std::sqrt(squares / static_cast<double>(count - 1) / static_cast<double>(count));
  return mean;
}

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return make_error(ErrorCode::kNotFound, fmt::format("--text {}: cannot open this file", path), "text");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad())
    return make_error(ErrorCode::kIo, fmt::format("--text {}: cannot read this file", path), "text");
  if (!is_valid_utf8(text)) return invalid(fmt::format("--text {}: not valid UTF-8", path), "text");
  return text;
}

// One window: tokens [begin, end), of which [scored, end) count.
struct Window {
  std::int64_t begin = 0;
  std::int64_t scored = 0;
  std::int64_t end = 0;
};
std::vector<Window> make_windows(std::int64_t num_tokens, std::int64_t context, std::int64_t stride) {
  std::vector<Window> windows;
  std::int64_t scored = 1;  // nothing stands before the first token
  for (std::int64_t begin = 0; scored < num_tokens; begin += stride) {
    const std::int64_t end = std::min(begin + context, num_tokens);
    windows.push_back({begin, scored, end});
    scored = end;
  }
  return windows;
}

class Scorer {
 public:
  Scorer(const LoadedModel& model, Scores& scores) : model_(model), scores_(scores) {}

  Status run(const std::vector<Window>& windows) {
    const auto begun = std::chrono::steady_clock::now();
    std::int64_t total = 0;
    for (const Window& window : windows) total += window.end - window.begin;
    scores_.logprobs.resize(scores_.ids.size() - 1);
    WorkProgress progress("scoring");
    // A few windows at a time fill the steps; the answers are the same for any number.
    const auto at_once = static_cast<std::size_t>(model_.engine->config().max_num_seqs);
    for (std::size_t i = 0; i < windows.size(); i += at_once) {
      const std::size_t end = std::min(windows.size(), i + at_once);
      QUIRE_RETURN_IF_ERROR(run_some({windows.begin() + static_cast<std::ptrdiff_t>(i),
                                      windows.begin() + static_cast<std::ptrdiff_t>(end)},
                                     total, progress));
    }
    scores_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    return {};
  }

 private:
  Status run_some(const std::vector<Window>& windows, std::int64_t total, WorkProgress& progress) {
    auto stream = std::make_shared<TokenStream>(static_cast<std::int32_t>(windows.size()));
    std::vector<TokenRequest> requests;
    for (const Window& window : windows) {
      TokenRequest request;
      request.id = "eval";
      request.prompt.assign(scores_.ids.begin() + window.begin, scores_.ids.begin() + window.end);
      request.eviction = model_.served.eviction;
      request.params.max_tokens = 0;
      request.params.num_prompt_logprobs = 0;
      request.stream = stream;
      request.choice = static_cast<std::int32_t>(requests.size());
      requests.push_back(std::move(request));
    }
    const std::uint64_t before = model_.engine->stats().prompt_tokens;
    QUIRE_RETURN_IF_ERROR(model_.engine->submit_all(std::move(requests)));
    for (std::size_t num_ended = 0; num_ended < windows.size();) {
      if (take_interrupt()) {
        stream->cancel_all();
        return make_error(ErrorCode::kCancelled, "interrupted");
      }
      std::optional<TokenEvent> event = stream->next(std::chrono::milliseconds(100));
      const auto done = static_cast<double>(scores_.num_computed) +
                        static_cast<double>(model_.engine->stats().prompt_tokens - before);
      progress.update(done / static_cast<double>(total));
      if (!event) continue;
      if (event->error) return *event->error;
      const Window& window = windows[static_cast<std::size_t>(event->choice)];
      for (std::int64_t at = window.scored; at < window.end; ++at) {
        const auto& position = event->prompt_logprobs.at(static_cast<std::size_t>(at - window.begin));
        QUIRE_CHECK(position.has_value());
        scores_.logprobs[static_cast<std::size_t>(at - 1)] = position->chosen.logprob;
      }
      ++num_ended;
    }
    for (const Window& window : windows) scores_.num_computed += window.end - window.begin;
    return {};
  }

  const LoadedModel& model_;
  Scores& scores_;
};

Result<Scores> score(PplFlags flags, const std::string& text) {
  Scores scores;
  scores.context = flags.context;
  // With eviction a window of the text may be longer than the model's context, and than the cache.
  const bool evicts = flags.model.kv_eviction != "none";
  if (flags.context > 0 && !evicts) flags.model.max_model_len = std::to_string(flags.context);
  if (!flags.model.max_num_seqs_given) {
    const std::int64_t context = flags.context > 0 ? flags.context : kDefaultContext;
    flags.model.max_num_seqs = std::clamp<std::int64_t>(kDefaultContext / context, 1, 16);
  }
  QUIRE_TRY(const std::unique_ptr<LoadedModel> model,
            load_for_serving(flags.model, progress_bar("loading"), {}));
  if (scores.context == 0) scores.context = std::min(kDefaultContext, model->served.max_model_len);
  scores.stride = flags.stride > 0 ? flags.stride : std::max<std::int64_t>(1, scores.context / 2);
  if (scores.context < 2) {
    return invalid(
        fmt::format("--context {}: a token is scored by what stands before it; at least 2 are needed",
                    scores.context),
        "context");
  }
  if (scores.stride >= scores.context) {
    return invalid(
        fmt::format("--stride {}: windows of {} tokens must overlap by one token at least, so that "
                    "every token has one before it; choose 1 to {}",
                    scores.stride, scores.context, scores.context - 1),
        "stride");
  }
  scores.model = model->served.names.front();
  scores.settings = fmt::format("compute {}, KV {}", compute_mode_name(model->backend->compute_mode()),
                                dtype_name(model->engine->config().kv_dtype));
  if (const KvEviction& eviction = model->served.eviction; eviction.evicts()) {
    scores.settings += fmt::format(", streaming ({} sinks, window {})", eviction.sinks, eviction.window);
  }
  scores.ids = model->tokenizer->encode(text, {true, true});
  if (flags.max_tokens > 0 && static_cast<std::int64_t>(scores.ids.size()) > flags.max_tokens) {
    scores.ids.resize(static_cast<std::size_t>(flags.max_tokens));
  }
  if (scores.ids.size() < 2) {
    return invalid(fmt::format("--text {}: {} tokens; at least 2 are needed", flags.text, scores.ids.size()),
                   "text");
  }
  Scorer scorer(*model, scores);
  QUIRE_RETURN_IF_ERROR(
      scorer.run(make_windows(static_cast<std::int64_t>(scores.ids.size()), scores.context, scores.stride)));
  return scores;
}

Status save_logprobs(const std::string& path, const Scores& scores) {
  if (path.empty()) return {};
  return write_json(path, {{"format", kLogprobFormat},
                           {"model", scores.model},
                           {"settings", scores.settings},
                           {"context", scores.context},
                           {"stride", scores.stride},
                           {"token_ids_sha256", scores.ids_hash()},
                           {"logprobs", scores.logprobs}});
}

// What --against names. Only the text's tokens must be the same: windows may differ, which is a comparison
// too.
Result<Scores> read_baseline(const std::string& path, const Scores& scores) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return make_error(ErrorCode::kNotFound, fmt::format("--against {}: cannot open this file", path),
                      "against");
  }
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Scores baseline;
  std::string hash;
  try {
    if (json.at("format") != kLogprobFormat) throw std::runtime_error("another format");
    baseline.model = json.at("model");
    baseline.settings = json.at("settings");
    baseline.context = json.at("context");
    baseline.stride = json.at("stride");
    hash = json.at("token_ids_sha256");
    baseline.logprobs = json.at("logprobs").get<std::vector<float>>();
  } catch (const std::exception&) {
    return invalid(fmt::format("--against {}: not a file that --save-logprobs wrote", path), "against");
  }
  if (hash != scores.ids_hash() || baseline.logprobs.size() != scores.logprobs.size()) {
    return invalid(
        fmt::format("--against {}: it is about other tokens; both runs need the same text, --max-tokens "
                    "and tokenizer",
                    path),
        "against");
  }
  return baseline;
}

Json scores_json(const Scores& scores) {
  const Mean mean =
      mean_of(scores.logprobs.size(), [&](std::size_t i) { return double{scores.logprobs[i]}; });
  const double perplexity = std::exp(-mean.value);
  return {{"model", scores.model},
          {"settings", scores.settings},
          {"context", scores.context},
          {"stride", scores.stride},
          {"num_tokens", scores.ids.size()},
          {"num_scored", scores.logprobs.size()},
          {"perplexity", perplexity},
          {"perplexity_error", perplexity * mean.error},
          {"mean_logprob", mean.value},
          {"mean_logprob_error", mean.error},
          {"seconds", scores.seconds},
          {"tokens_per_second", static_cast<double>(scores.num_computed) / scores.seconds}};
}

// How the scores differ from the baseline's, token by token.
Json difference_json(const Scores& scores, const Scores& baseline) {
  const auto difference = [&](std::size_t i) {
    return double{scores.logprobs[i]} - double{baseline.logprobs[i]};
  };
  const Mean mean = mean_of(scores.logprobs.size(), difference);
  const Mean magnitude =
      mean_of(scores.logprobs.size(), [&](std::size_t i) { return std::abs(difference(i)); });
  double largest = 0;
  for (std::size_t i = 0; i < scores.logprobs.size(); ++i)
    largest = std::max(largest, std::abs(difference(i)));
  const double base =
      mean_of(baseline.logprobs.size(), [&](std::size_t i) { return double{baseline.logprobs[i]}; }).value;
  return {{"settings", baseline.settings},
          {"context", baseline.context},
          {"stride", baseline.stride},
          {"perplexity", std::exp(-base)},
          {"perplexity_ratio", std::exp(-mean.value)},
          {"perplexity_ratio_error", std::exp(-mean.value) * mean.error},
          {"mean_logprob_difference", mean.value},
          {"mean_logprob_difference_error", mean.error},
          {"mean_absolute_difference", magnitude.value},
          {"largest_difference", largest}};
}

std::string text_of(const Json& out) {
  const auto number = [](const Json& from, const char* key) { return from[key].get<double>(); };
  std::string text = fmt::format(
      "{}, {}: {} tokens in windows of {}, stride {}\n"
      "perplexity {:.4f} +- {:.4f}  (mean logprob {:.5f} +- {:.5f} over {} tokens)\n"
      "{:.1f} tok/s, {:.1f} s\n",
      out["model"].get<std::string>(), out["settings"].get<std::string>(),
      out["num_tokens"].get<std::int64_t>(), out["context"].get<std::int64_t>(),
      out["stride"].get<std::int64_t>(), number(out, "perplexity"), number(out, "perplexity_error"),
      number(out, "mean_logprob"), number(out, "mean_logprob_error"), out["num_scored"].get<std::int64_t>(),
      number(out, "tokens_per_second"), number(out, "seconds"));
  if (!out.contains("against")) return text;
  const Json& against = out["against"];
  const double ratio = number(against, "perplexity_ratio");
  return text + fmt::format(
                    "against {} (windows of {}, stride {}): perplexity {:.4f}\n"
                    "  ratio {:.5f} +- {:.5f} ({:+.3f}%), mean logprob difference {:+.6f} +- {:.6f}, "
                    "magnitude {:.5f}, largest {:.4f}\n",
                    against["settings"].get<std::string>(), against["context"].get<std::int64_t>(),
                    against["stride"].get<std::int64_t>(), number(against, "perplexity"), ratio,
                    number(against, "perplexity_ratio_error"), 100 * (ratio - 1),
                    number(against, "mean_logprob_difference"),
                    number(against, "mean_logprob_difference_error"),
                    number(against, "mean_absolute_difference"), number(against, "largest_difference"));
}

Status ppl(const PplFlags& flags) {
  QUIRE_RETURN_IF_ERROR(set_log_level_by_name(flags.model.log_level));
  QUIRE_RETURN_IF_ERROR(check_writable(flags.save));
  if (!flags.against.empty() && !flags.compare_kv_dtype.empty()) {
    return invalid("--against and --compare-kv-cache-dtype both name a baseline: give one of them",
                   "against");
  }
  QUIRE_TRY(const std::string text, read_text(flags.text));
  catch_interrupts();
  std::optional<Scores> baseline;
  if (!flags.compare_kv_dtype.empty()) {
    PplFlags other = flags;
    other.model.kv_cache_dtype = flags.compare_kv_dtype;
    QUIRE_TRY(baseline, score(other, text));
  }
  QUIRE_TRY(const Scores scores, score(flags, text));
  if (!flags.against.empty()) {
    QUIRE_TRY(baseline, read_baseline(flags.against, scores));
  }
  Json out = scores_json(scores);
  if (baseline) out["against"] = difference_json(scores, *baseline);
  fmt::print("{}", flags.json ? dump_json(out) + "\n" : text_of(out));
  return save_logprobs(flags.save, scores);
}

void add_ppl_command(CLI::App& eval, int* exit_code) {
  CLI::App* command = eval.add_subcommand("ppl", "Perplexity of a text, each token scored once");
  auto flags = std::make_shared<PplFlags>();
  flags->model.log_level = "warning";
  add_model_flags(*command, flags->model);
  add_eviction_flags(*command, flags->model);
  const CLI::Range count(std::int64_t{1}, std::int64_t{1} << 40);
  command->add_option("--text", flags->text, "The text, a file in UTF-8")->required();
  command
      ->add_option("--context", flags->context,
                   "Tokens of a window, at least 2; default: 2048, or the model's context if that is less")
      ->check(count);
  command
      ->add_option("--stride", flags->stride,
                   "From one window to the next, 1 to --context - 1; default: half a window. Each token is "
                   "scored in the first window that has it, given at least --context - --stride tokens")
      ->check(count);
  command
      ->add_option("--max-tokens", flags->max_tokens, "Take only this many tokens of the text; default: all")
      ->check(count);
  command->add_option("--compare-kv-cache-dtype", flags->compare_kv_dtype,
                      "Score the text with this type of cache too, and show the difference token by token");
  command->add_option("--save-logprobs", flags->save, "Write the logprob of each token to this file (JSON)");
  command->add_option("--against", flags->against,
                      "Show the difference, token by token, from what --save-logprobs wrote");
  command->add_flag("--json", flags->json, "One JSON object instead of text");
  command->callback([flags, exit_code] {
    const Status status = ppl(*flags);
    *exit_code = status.ok() ? 0 : report_error(status.error());
  });
}

}  // namespace

void add_eval_command(CLI::App& app, int* exit_code) {
  CLI::App* eval = app.add_subcommand("eval", "How well a model does with these settings");
  eval->require_subcommand(1);
  add_ppl_command(*eval, exit_code);
}

}  // namespace quire
