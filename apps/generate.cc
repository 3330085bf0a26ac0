// quire generate MODEL -p PROMPT: one answer on stdout, without a server.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "api/reply.h"
#include "api/submit.h"
#include "apps/app_support.h"
#include "apps/commands.h"
#include "apps/interrupt.h"
#include "text/utf8.h"

namespace quire {
namespace {

struct GenerateFlags {
  ModelFlags model;
  SamplingFlags sampling;
  std::string prompt;
  std::string system;
  bool raw = false;
  bool json = false;
};

GenerateRequest with_prompt(GenerateRequest request, const GenerateFlags& flags, const std::string& prompt) {
  if (flags.raw) {
    request.prompts.push_back({prompt, {}, false});
    return request;
  }
  ChatPrompt chat;
  Json messages = Json::array();
  if (!flags.system.empty()) messages.push_back({{"role", "system"}, {"content", flags.system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  chat.context["messages"] = std::move(messages);
  chat.context["add_generation_prompt"] = true;
  chat.final_text = prompt;
  request.add_special_tokens = false;
  request.chat = std::move(chat);
  return request;
}

Status generate(const GenerateFlags& flags) {
  QUIRE_RETURN_IF_ERROR(set_log_level_by_name(flags.model.log_level));
  std::string prompt = flags.prompt;
  if (prompt == "-")
    prompt.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  if (!is_valid_utf8(prompt) || !is_valid_utf8(flags.system))
    return invalid("the prompt is not valid UTF-8", "prompt");
  QUIRE_TRY(const std::unique_ptr<LoadedModel> loaded,
            load_for_serving(flags.model, progress_bar("loading"), {}));
  const ServedModel& model = loaded->served;
  QUIRE_TRY(GenerateRequest settings, make_request(flags.sampling, flags.model, model));
  GenerateRequest request = with_prompt(std::move(settings), flags, prompt);
  // A command-line user expects the whole answer, not the 16 tokens of an API's default.
  if (!request.max_tokens) request.max_tokens = model.max_model_len;
  catch_interrupts();
  QUIRE_TRY(const Submission submission, submit(request, model, {}));
  Reply reply(request, submission, model, nullptr);
  std::string text;
  std::string finish;
  while (!reply.finished()) {
    if (take_interrupt()) {
      reply.cancel();
      finish = "abort";
      break;
    }
    QUIRE_TRY(std::optional<TextDelta> delta, reply.next(std::chrono::milliseconds(50)));
    if (!delta) continue;
    if (!delta->finish_reason.empty()) finish = delta->finish_reason;
    if (flags.json) {
      text += delta->text;
    } else {
      std::fwrite(delta->text.data(), 1, delta->text.size(), stdout);
      std::fflush(stdout);
    }
  }
  if (flags.json) {
    const Usage usage = reply.usage();
    const Json out = {{"model", model.names.front()},
                      {"text", text},
                      {"finish_reason", finish},
                      {"prompt_tokens", usage.prompt_tokens},
                      {"completion_tokens", usage.completion_tokens}};
    fmt::print("{}\n", dump_json(out));
  } else {
    fmt::print("\n");
  }
  if (finish == "abort") return make_error(ErrorCode::kCancelled, "interrupted");
  return {};
}

}  // namespace

void add_generate_command(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("generate", "Answer one prompt on stdout");
  auto flags = std::make_shared<GenerateFlags>();
  // One sequence: a KV cache for more would only take memory.
  flags->model.max_num_seqs = 1;
  flags->model.log_level = "warning";
  add_model_flags(*command, flags->model);
  add_eviction_flags(*command, flags->model);
  add_sampling_flags(*command, flags->sampling);
  command->add_option("-p,--prompt", flags->prompt, "The prompt; - reads it from stdin")->required();
  command->add_option("--system", flags->system, "A system message before it");
  command->add_flag("--raw", flags->raw, "Continue the text as it is, without the chat template");
  command->add_flag("--json", flags->json, "One JSON object with the text and the counts, at the end");
  command->callback([flags, exit_code] {
    const Status status = generate(*flags);
    *exit_code = status.ok() ? 0 : report_error(status.error());
  });
}

}  // namespace quire
