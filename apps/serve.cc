// quire serve MODEL: the HTTP server. Order of the start: listen (and answer 503), load, answer.
#include <array>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "api/api_server.h"
#include "api/error_body.h"
#include "apps/app_support.h"
#include "apps/commands.h"
#include "base/log.h"
#include "net/http_server.h"

namespace quire {
namespace {

struct ServeFlags {
  ModelFlags model;
  std::vector<std::string> served_model_names;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string uds;
  std::vector<std::string> api_keys;
  std::int64_t max_logprobs = 20;
  std::int64_t shutdown_timeout = 30;
  int max_connections = 1024;
  std::int64_t max_request_bytes = 32 << 20;
  double header_timeout = 10;
  double body_timeout = 60;
  double write_timeout = 30;
  double keep_alive_timeout = 60;
  double stall_timeout = 120;
  bool trust_request_chat_template = false;
  bool control_tokens_in_messages = false;
  bool log_requests = false;
};

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// SIGINT and SIGTERM, waited for on a thread of its own: the first one drains, a second one ends at once.
// Signals must be blocked before any other thread is made.
class StopSignals {
 public:
  StopSignals() {
    ::sigemptyset(&set_);
    ::sigaddset(&set_, SIGINT);
    ::sigaddset(&set_, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    // Detached: it sits in sigwait() when main returns.
    std::thread([this] { watch(); }).detach();
  }
  void loaded() {
    const std::lock_guard<std::mutex> lock(mutex_);
    loading_ = false;
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return stopping_; });
  }

 private:
  void watch() {
    for (;;) {
      int signal = 0;
      if (::sigwait(&set_, &signal) != 0) continue;
      const std::lock_guard<std::mutex> lock(mutex_);
      if (loading_) {
        fmt::print(stderr, "\nstopped while loading\n");
        ::_exit(0);
      }
      if (stopping_) {
        fmt::print(stderr, "stopped at once by a second signal\n");
        ::_exit(signal == SIGINT ? 130 : 143);
      }
      stopping_ = true;
      changed_.notify_all();
    }
  }

  sigset_t set_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool loading_ = true;
  bool stopping_ = false;
};

// Each connection is a descriptor; the default soft limit of 1024 would refuse some of 1024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// --api-key, else QUIRE_API_KEY, else VLLM_API_KEY; commas separate several in the variables.
std::vector<std::string> api_keys_of(const ServeFlags& flags) {
  if (!flags.api_keys.empty()) return flags.api_keys;
  for (const char* name : {"QUIRE_API_KEY", "VLLM_API_KEY"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::vector<std::string> keys;
    std::string rest = value;
    while (!rest.empty()) {
      const std::size_t comma = rest.find(',');
      if (comma != 0) keys.push_back(rest.substr(0, comma));
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
    return keys;
  }
  return {};
}

HttpServerOptions server_options(const ServeFlags& flags) {
  HttpServerOptions options;
  options.host = flags.host;
  options.port = flags.port;
  options.unix_path = flags.uds;
  options.max_connections = flags.max_connections;
  options.limits.max_body_bytes = static_cast<std::size_t>(flags.max_request_bytes);
  options.limits.header_timeout = milliseconds_of(flags.header_timeout);
  options.limits.body_timeout = milliseconds_of(flags.body_timeout);
  options.limits.write_timeout = milliseconds_of(flags.write_timeout);
  options.limits.keep_alive_timeout = milliseconds_of(flags.keep_alive_timeout);
  return options;
}

Status serve(const ServeFlags& flags) {
  QUIRE_RETURN_IF_ERROR(set_log_level_by_name(flags.model.log_level));
  // Never destroyed: its thread waits for signals until the process ends.
  static StopSignals& signals = *new StopSignals;
  raise_descriptor_limit();
  ApiOptions api_options;
  api_options.version = QUIRE_VERSION;
  api_options.api_keys = api_keys_of(flags);
  for (const std::string& key : api_options.api_keys) {
    if (key.empty()) return invalid("--api-key: a key must not be empty", "api-key");
  }
  api_options.max_logprobs = flags.max_logprobs;
  api_options.trust_request_chat_template = flags.trust_request_chat_template;
  api_options.control_tokens_in_messages = flags.control_tokens_in_messages;
  api_options.log_requests = flags.log_requests;
  api_options.engine_stall_seconds = flags.stall_timeout;
  ApiServer api(api_options);

  // The model outlives the server: no connection may outlive what it reads.
  std::unique_ptr<LoadedModel> loaded;
  HttpServer server(
      server_options(flags),
      [&api](const HttpRequest& request, ResponseWriter& writer) { api.handle(request, writer); },
      [](int status, std::string_view message) { return dump_json(http_error_json(status, message)); });
  QUIRE_RETURN_IF_ERROR(server.start());
  log_info("listening on {}; loading", server.address());
  QUIRE_TRY(loaded, load_for_serving(flags.model, progress_bar("loading"),
                                     [&api](const StepReport& step) { api.metrics().observe_step(step); }));
  if (!flags.served_model_names.empty()) loaded->served.names = flags.served_model_names;
  Json& info = loaded->served.info;
  info["served_model_names"] = loaded->served.names;
  info["api"] = {{"needs_key", !api_options.api_keys.empty()},
                 {"max_logprobs", flags.max_logprobs},
                 {"max_connections", flags.max_connections},
                 {"max_request_bytes", flags.max_request_bytes},
                 {"trust_request_chat_template", flags.trust_request_chat_template},
                 {"control_tokens_in_messages", flags.control_tokens_in_messages},
                 {"shutdown_timeout_s", flags.shutdown_timeout},
                 {"header_timeout_s", flags.header_timeout},
                 {"body_timeout_s", flags.body_timeout},
                 {"write_timeout_s", flags.write_timeout}};
  for (const std::string& line : loaded->report) fmt::print(stderr, "  {}\n", line);
  std::string names;
  for (const std::string& name : loaded->served.names) names += (names.empty() ? "" : ", ") + name;
  api.serve_model(loaded->served);
  signals.loaded();
  log_info("serving {} on {}{}", names, server.address(),
           api_options.api_keys.empty() ? "" : ", with an API key");
  if (flags.uds.empty() && flags.host == "127.0.0.1") {
    log_info("only this machine can connect; --host 0.0.0.0 admits others");
  }

  signals.wait();
  log_info("stopping: no new requests; those that run have {} s (a second signal ends at once)",
           flags.shutdown_timeout);
  server.close_listener();
  const bool drained = loaded->engine->drain(std::chrono::seconds(flags.shutdown_timeout));
  // What the engine has finished or cut still has to reach the clients.
  const bool delivered = server.stop(std::chrono::seconds(2));
  log_info("stopped{}{}", drained ? "" : "; some requests were cut off",
           delivered ? "" : "; some clients too");
  return {};
}

}  // namespace

void add_serve_command(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("serve", "Serve a model over HTTP with OpenAI's API");
  auto flags = std::make_shared<ServeFlags>();
  add_model_flags(*command, flags->model);
  add_eviction_flags(*command, flags->model);
  command
      ->add_option("--max-num-queued-reqs", flags->model.max_num_queued_reqs,
                   "Sequences that may wait; beyond it requests get 503. 0 = no bound")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command
      ->add_option("--served-model-name", flags->served_model_names,
                   "What requests call the model; several names may follow")
      ->expected(1, 64);
  command->add_option("--host", flags->host, "Address to listen on: IPv4, IPv6 or a name")
      ->capture_default_str();
  command->add_option("--port", flags->port, "TCP port; 0 = any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--uds", flags->uds, "Listen on this Unix socket instead");
  command
      ->add_option("--api-key", flags->api_keys,
                   "Keys that requests must bring one of; else $QUIRE_API_KEY or $VLLM_API_KEY")
      ->expected(1, 64);
  command->add_option("--max-logprobs", flags->max_logprobs, "Most logprobs per token that a request may ask")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command
      ->add_option("--shutdown-timeout", flags->shutdown_timeout,
                   "Seconds that running requests have to end after SIGTERM")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command->add_option("--max-connections", flags->max_connections, "Beyond it, connections get 503 at once")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--max-request-bytes", flags->max_request_bytes, "Largest request body")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->capture_default_str();
  command
      ->add_option("--http-header-timeout", flags->header_timeout, "Seconds in which the headers must arrive")
      ->check(CLI::Range(0.01, 86400.0))
      ->capture_default_str();
  command->add_option("--http-body-timeout", flags->body_timeout, "Seconds in which the body must arrive")
      ->check(CLI::Range(0.01, 86400.0))
      ->capture_default_str();
  command
      ->add_option("--http-write-timeout", flags->write_timeout,
                   "Seconds without progress after which a client that does not read is dropped")
      ->check(CLI::Range(0.01, 86400.0))
      ->capture_default_str();
  command
      ->add_option("--http-keep-alive-timeout", flags->keep_alive_timeout,
                   "Seconds that a connection may idle")
      ->check(CLI::Range(0.01, 86400.0))
      ->capture_default_str();
  command
      ->add_option("--engine-stall-timeout", flags->stall_timeout,
                   "/health fails when work waits and no step has ended for this many seconds")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  command->add_flag("--trust-request-chat-template", flags->trust_request_chat_template,
                    "Accept chat_template in requests");
  command->add_flag(
      "--control-tokens-in-messages", flags->control_tokens_in_messages,
      "Let control tokens spelled in messages act as such, as Hugging Face does (a message can then "
      "forge a turn)");
  command->add_flag("--enable-log-requests,!--disable-log-requests", flags->log_requests,
                    "Log each request's parameters; never its text");
  command->callback([flags, exit_code] {
    const Status status = serve(*flags);
    *exit_code = status.ok() ? 0 : report_error(status.error());
  });
}

}  // namespace quire
