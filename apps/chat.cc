// quire chat MODEL: a conversation in the terminal, or with lines from a pipe.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "api/reply.h"
#include "api/submit.h"
#include "apps/app_support.h"
#include "apps/commands.h"
#include "apps/interrupt.h"
#include "text/utf8.h"

namespace quire {
namespace {

struct ChatFlags {
  ModelFlags model;
  SamplingFlags sampling;
  std::string system;
};

constexpr const char* kHelp =
    "/clear          forget the conversation\n"
    "/system TEXT    set the system message (nothing: remove it) and forget the conversation\n"
    "/exit           leave; so does Ctrl-D\n"
    "Ctrl-C          stop the answer\n"
    "A line that ends in \\ goes on in the next one.\n";

// Lines of standard input; unlike std::getline, it tells an interrupt from the end.
class LineReader {
 public:
  enum class Outcome { kLine, kEnd, kInterrupted };
  Outcome read(std::string& line) {
    line.clear();
    for (;;) {
      const std::size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        if (!line.empty() && line.back() == '\r') line.pop_back();
        return Outcome::kLine;
      }
      if (!wait_for_input(STDIN_FILENO)) return Outcome::kInterrupted;
      char bytes[4096];
      const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof bytes);
      if (got > 0) {
        buffer_.append(bytes, static_cast<std::size_t>(got));
      } else if (!buffer_.empty()) {
        line = std::exchange(buffer_, "");
        return Outcome::kLine;
      } else {
        return Outcome::kEnd;
      }
    }
  }

 private:
  std::string buffer_;
};

class Conversation {
 public:
  Conversation(const ChatFlags& flags, const ServedModel& model, bool terminal)
      : flags_(flags), model_(model), terminal_(terminal), system_(flags.system) {
    clear();
  }

  Status run() {
    LineReader input;
    std::string text;
    for (;;) {
      if (terminal_) {
        fmt::print("{}", text.empty() ? "> " : ". ");
        std::fflush(stdout);
      }
      std::string line;
      const auto outcome = input.read(line);
      if (outcome == LineReader::Outcome::kEnd) break;
      if (outcome == LineReader::Outcome::kInterrupted) {
        text.clear();
        fmt::print("\n(Ctrl-D or /exit to leave)\n");
        continue;
      }
      if (!line.empty() && line.back() == '\\') {
        line.back() = '\n';
        text += line;
        continue;
      }
      text += line;
      if (!command(text)) break;
      if (!text.empty()) QUIRE_RETURN_IF_ERROR(turn(text));
      text.clear();
    }
    if (terminal_) fmt::print("\n");
    return {};
  }

 private:
  void clear() {
    messages_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  // Handles a line that begins with '/' and empties it. False = leave.
  bool command(std::string& text) {
    if (text.empty() || text.front() != '/') return true;
    const std::string name = text.substr(0, text.find(' '));
    const std::string rest = text.size() > name.size() ? text.substr(name.size() + 1) : "";
    text.clear();
    if (name == "/exit" || name == "/quit") return false;
    if (name == "/clear") {
      clear();
    } else if (name == "/system") {
      system_ = rest;
      clear();
    } else {
      fmt::print(stderr, "{}{}", name == "/help" ? "" : fmt::format("There is no {}.\n", name), kHelp);
    }
    return true;
  }

  Status turn(const std::string& text) {
    if (!is_valid_utf8(text)) {
      fmt::print(stderr, "That line is not valid UTF-8.\n");
      return {};
    }
    messages_.push_back({{"role", "user"}, {"content", text}});
    QUIRE_TRY(GenerateRequest request, make_request(flags_.sampling, flags_.model, model_));
    ChatPrompt chat;
    chat.context["messages"] = messages_;
    chat.context["add_generation_prompt"] = true;
    request.chat = std::move(chat);
    request.add_special_tokens = false;
    take_interrupt();
    const auto submission = submit(request, model_, {});
    if (!submission.ok()) return refused(submission.error());
    const auto answer = stream(request, *submission);
    if (!answer.ok()) return refused(answer.error());
    messages_.push_back({{"role", "assistant"}, {"content", *answer}});
    return {};
  }

  // The conversation stays as it was before the line that could not be answered.
  Status refused(const Error& error) {
    messages_.erase(messages_.size() - 1);
    if (error.code == ErrorCode::kInternal || error.code == ErrorCode::kUnavailable) return error;
    fmt::print(stderr, "{}{}\n", error.message,
               error.code == ErrorCode::kTooLarge ? " /clear forgets the conversation." : "");
    return {};
  }

  Result<std::string> stream(const GenerateRequest& request, const Submission& submission) {
    Reply reply(request, submission, model_, nullptr);
    std::string answer;
    std::string finish;
    while (!reply.finished()) {
      if (take_interrupt()) {
        reply.cancel();
        finish = "interrupted";
        break;
      }
      QUIRE_TRY(const std::optional<TextDelta> delta, reply.next(std::chrono::milliseconds(50)));
      if (!delta) continue;
      answer += delta->text;
      if (!delta->finish_reason.empty()) finish = delta->finish_reason;
      std::fwrite(delta->text.data(), 1, delta->text.size(), stdout);
      std::fflush(stdout);
    }
    fmt::print("\n");
    std::fflush(stdout);
    if (finish == "interrupted") fmt::print(stderr, "(interrupted)\n");
    if (finish == "length") fmt::print(stderr, "(cut off: no tokens left)\n");
    return answer;
  }

  const ChatFlags& flags_;
  const ServedModel& model_;
  const bool terminal_;
  std::string system_;
  Json messages_;
};

Status chat(const ChatFlags& flags) {
  QUIRE_RETURN_IF_ERROR(set_log_level_by_name(flags.model.log_level));
  if (!is_valid_utf8(flags.system)) return invalid("--system: not valid UTF-8", "system");
  QUIRE_TRY(const std::unique_ptr<LoadedModel> loaded,
            load_for_serving(flags.model, progress_bar("loading"), {}));
  if (loaded->served.chat_template == nullptr) {
    return make_error(ErrorCode::kUnsupported,
                      loaded->served.chat_template_problem + " Give one with --chat-template.");
  }
  const bool terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  if (terminal) fmt::print("{} - /help for commands\n", loaded->served.names.front());
  catch_interrupts();
  return Conversation(flags, loaded->served, terminal).run();
}

}  // namespace

void add_chat_command(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("chat", "Talk with a model in the terminal");
  auto flags = std::make_shared<ChatFlags>();
  flags->model.max_num_seqs = 1;
  flags->model.log_level = "warning";
  add_model_flags(*command, flags->model);
  add_eviction_flags(*command, flags->model);
  add_sampling_flags(*command, flags->sampling);
  command->add_option("--system", flags->system, "The system message");
  command->callback([flags, exit_code] {
    const Status status = chat(*flags);
    *exit_code = status.ok() ? 0 : report_error(status.error());
  });
}

}  // namespace quire
