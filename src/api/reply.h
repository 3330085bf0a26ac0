// Purpose: from the engine's TokenEvents to text, and to the client (step 10 of the river): whole characters,
// stop strings, usage, one answer or a stream of events. In: Submission. Out: bytes through a ResponseWriter;
// the JSON shapes are the endpoint's (ReplyFormat). Thread: the connection's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/generate_request.h"
#include "api/metrics.h"
#include "api/served_model.h"
#include "api/submit.h"
#include "net/http_message.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace quire {

// What one TokenEvent becomes. Several of one choice, merged, are its whole answer.
struct TextDelta {
  std::int32_t choice = 0;
  std::string text;
  std::vector<std::int32_t> ids;
  std::vector<PositionLogprobs> logprobs;  // one per id, if wanted
  std::vector<std::optional<PositionLogprobs>> prompt_logprobs;
  bool first = false;         // of its choice
  std::string finish_reason;  // "" = goes on
  std::variant<std::monostate, std::int32_t, std::string> stop_reason;
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;
};

// The JSON of one endpoint.
class ReplyFormat {
 public:
  virtual ~ReplyFormat() = default;
  // Appends the events that a delta becomes. usage: of this choice so far, with continuous_usage_stats.
  virtual void append_events(const TextDelta& delta, const Usage* usage, std::string& out) = 0;
  virtual void append_usage_event(const Usage& usage, std::string& out) = 0;
  // answers[i] is choice i, merged.
  virtual Json whole(const std::vector<TextDelta>& answers, const Usage& usage) = 0;
};

// Reads a submission's events back as text. Also used by `quire generate` and `quire chat`.
class Reply {
 public:
  Reply(const GenerateRequest& request, const Submission& submission, const ServedModel& model,
        Metrics* metrics);
  // Cancels what still runs.
  ~Reply();
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  // The next delta; nullopt if none came in time. An error ends the whole reply.
  Result<std::optional<TextDelta>> next(std::chrono::milliseconds timeout);
  bool finished() const { return num_running_ == 0; }
  void cancel();
  Usage usage() const;
  Usage usage_of(std::int32_t choice) const;

 private:
  struct Choice {
    Choice(const Tokenizer& tokenizer, bool skip_special, bool at_start, StopStrings stop)
        : detokenizer(tokenizer, skip_special, at_start), stop_strings(std::move(stop)) {}
    Detokenizer detokenizer;
    StopStrings stop_strings;
    std::int64_t num_tokens = 0;
    bool started = false;
    bool finished = false;
    std::chrono::steady_clock::time_point first_token;
    std::chrono::steady_clock::time_point last_token;
  };

  TextDelta read(Choice& choice, TokenEvent& event);
  void finish(Choice& choice, TextDelta& delta, const RequestTimes& times);

  const GenerateRequest& request_;
  const Submission& submission_;
  Metrics* metrics_;
  std::vector<Choice> choices_;
  std::int32_t num_running_;
  std::int64_t cached_tokens_ = 0;
};

// Sends everything to the client, streamed or whole, until it ends, fails or the client leaves.
void deliver(const GenerateRequest& request, const Submission& submission, const ServedModel& model,
             const ApiOptions& options, Metrics* metrics, ReplyFormat& format, ResponseWriter& writer);

}  // namespace quire
