#include "api/reply.h"

#include <algorithm>
#include <utility>

#include "api/error_body.h"
#include "api/field_reader.h"
#include "net/sse.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How soon a client that left is noticed, which frees its blocks.
constexpr milliseconds kPoll{20};
// A stream's headers wait for the first token, so that a request that fails before it still gets a proper
// status; but not for longer than this, because clients and proxies give up on silence.
constexpr milliseconds kHeaderPatience{5'000};
constexpr milliseconds kKeepAlive{15'000};
// Events that are ready at once leave in one write of about this size.
constexpr std::size_t kWriteBytes = 32 * 1024;

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

void merge(TextDelta& whole, TextDelta delta) {
  whole.text += delta.text;
  whole.ids.insert(whole.ids.end(), delta.ids.begin(), delta.ids.end());
  std::move(delta.logprobs.begin(), delta.logprobs.end(), std::back_inserter(whole.logprobs));
  if (!delta.prompt_logprobs.empty()) whole.prompt_logprobs = std::move(delta.prompt_logprobs);
  if (!delta.finish_reason.empty()) {
    whole.finish_reason = std::move(delta.finish_reason);
    whole.stop_reason = std::move(delta.stop_reason);
  }
}

}  // namespace

Reply::Reply(const GenerateRequest& request, const Submission& submission, const ServedModel& model,
             Metrics* metrics)
    : request_(request),
      submission_(submission),
      metrics_(metrics),
      num_running_(submission.stream->num_choices()) {
  choices_.reserve(static_cast<std::size_t>(num_running_));
  const bool at_start = request.chat && !request.chat->continue_final_message;
  for (std::int32_t i = 0; i < num_running_; ++i) {
    choices_.emplace_back(*model.tokenizer, request.skip_special_tokens, at_start,
                          StopStrings(request.stop, request.include_stop_in_output));
  }
}

Reply::~Reply() {
  cancel();
}

void Reply::cancel() {
  if (num_running_ == 0) return;
  submission_.stream->cancel_all();
  if (metrics_ != nullptr) {
    for (std::int32_t i = 0; i < num_running_; ++i) metrics_->count_finished("abort");
  }
  num_running_ = 0;
}

Result<std::optional<TextDelta>> Reply::next(milliseconds timeout) {
  auto event = submission_.stream->next(timeout);
  if (!event) return std::optional<TextDelta>();
  Choice& choice = choices_[static_cast<std::size_t>(event->choice)];
  if (choice.finished) return std::optional<TextDelta>();  // the end of a choice that a stop string ended
  if (event->finish == FinishReason::kError) {
    if (metrics_ != nullptr) metrics_->count_finished("error");
    choice.finished = true;
    --num_running_;
    return event->error.value_or(make_error(ErrorCode::kInternal, "The request failed in the engine."));
  }
  if (event->finish == FinishReason::kAbort) {  // not by us: then this choice were finished
    if (metrics_ != nullptr) metrics_->count_finished("abort");
    choice.finished = true;
    --num_running_;
    return make_error(ErrorCode::kUnavailable, "The server is shutting down; the answer was cut off.");
  }
  return std::optional<TextDelta>(read(choice, *event));
}

TextDelta Reply::read(Choice& choice, TokenEvent& event) {
  const auto now = Clock::now();
  TextDelta delta;
  delta.choice = event.choice;
  delta.first = !std::exchange(choice.started, true);
  delta.prompt_logprobs = std::move(event.prompt_logprobs);
  if (event.token) {
    ++choice.num_tokens;
    if (metrics_ != nullptr) {
      if (choice.num_tokens == 1) {
        metrics_->observe_first_token(seconds(now - submission_.submitted));
      } else {
        metrics_->observe_inter_token(seconds(now - choice.last_token));
      }
    }
    if (choice.num_tokens == 1) choice.first_token = now;
    choice.last_token = now;
    delta.ids.push_back(*event.token);
    if (event.logprobs) delta.logprobs.push_back(std::move(*event.logprobs));
    // The token that ended the answer is counted, but its spelling is no part of the text.
    const bool is_stop_token = event.finish == FinishReason::kStop && event.stop_token.has_value();
    if (!is_stop_token || request_.include_stop_in_output) {
      const bool may_stop = choice.num_tokens >= request_.sampling.min_tokens;
      delta.text = choice.stop_strings.push(choice.detokenizer.push(*event.token), may_stop);
    }
  }
  if (choice.stop_strings.matched()) {
    delta.finish_reason = "stop";
    delta.stop_reason = *choice.stop_strings.matched();
    submission_.stream->cancel(event.choice);
  } else if (event.finish != FinishReason::kNone) {
    delta.text += choice.stop_strings.push(choice.detokenizer.finish());
    delta.text += choice.stop_strings.finish();
    delta.finish_reason = event.finish == FinishReason::kStop ? "stop" : "length";
    const auto& ids = request_.sampling.stop_token_ids;
    if (event.stop_token && std::find(ids.begin(), ids.end(), *event.stop_token) != ids.end()) {
      delta.stop_reason = *event.stop_token;
    }
  }
  if (!delta.finish_reason.empty()) finish(choice, delta, event.times);
  return delta;
}

void Reply::finish(Choice& choice, TextDelta& delta, const RequestTimes& times) {
  choice.finished = true;
  --num_running_;
  cached_tokens_ += times.num_cached_tokens;
  if (metrics_ == nullptr) return;
  const auto prompt = static_cast<std::size_t>(delta.choice) / static_cast<std::size_t>(request_.n);
  RequestSummary summary;
  summary.finish_reason = delta.finish_reason;
  summary.prompt_tokens = static_cast<std::int64_t>(submission_.prompts[prompt].ids.size());
  summary.generation_tokens = choice.num_tokens;
  summary.max_tokens = submission_.sampling.max_tokens;
  summary.n = request_.n;
  const auto now = Clock::now();
  summary.e2e_seconds = seconds(now - submission_.submitted);
  // A choice that a stop string ended has no times from the engine; its queueing is inside the first part.
  summary.queue_seconds = times.queued;
  summary.prefill_seconds = times.prefill;
  if (choice.num_tokens > 0) {
    if (times.prefill == 0) summary.prefill_seconds = seconds(choice.first_token - submission_.submitted);
    summary.decode_seconds = seconds(choice.last_token - choice.first_token);
  }
  summary.num_preemptions = times.num_preemptions;
  metrics_->observe_request(summary);
}

Usage Reply::usage_of(std::int32_t choice) const {
  const auto prompt = static_cast<std::size_t>(choice) / static_cast<std::size_t>(request_.n);
  return {static_cast<std::int64_t>(submission_.prompts[prompt].ids.size()),
          choices_[static_cast<std::size_t>(choice)].num_tokens, 0};
}

Usage Reply::usage() const {
  Usage usage;
  for (const PromptTokens& prompt : submission_.prompts) {
    usage.prompt_tokens += static_cast<std::int64_t>(prompt.ids.size());
  }
  for (const Choice& choice : choices_) usage.completion_tokens += choice.num_tokens;
  usage.cached_tokens = cached_tokens_;
  return usage;
}

namespace {

// One delivery: what has been sent, and how an error is told depending on that.
class Delivery {
 public:
  Delivery(const GenerateRequest& request, ReplyFormat& format, ResponseWriter& writer)
      : request_(request), format_(format), writer_(writer), answers_(0), begun_(Clock::now()) {}

  void run(Reply& reply, const ServedModel& model, const ApiOptions& options, std::int32_t num_choices) {
    answers_.resize(static_cast<std::size_t>(num_choices));
    auto next_health_check = Clock::now() + std::chrono::seconds(1);
    auto next_gone_check = Clock::now() + kPoll;
    while (!reply.finished()) {
      auto delta = reply.next(pending_.empty() ? kPoll : milliseconds(0));
      if (!delta.ok()) return fail(reply, delta.error());
      const auto now = Clock::now();
      if (*delta) {
        take(reply, std::move(**delta));
      } else if (!flush()) {
        return reply.cancel();
      }
      if (pending_.size() >= kWriteBytes && !flush()) return reply.cancel();
      if (now >= next_gone_check) {
        next_gone_check = now + kPoll;
        if (writer_.client_gone()) return reply.cancel();
        if (!keep_alive(now)) return reply.cancel();
      }
      if (now >= next_health_check) {
        next_health_check = now + std::chrono::seconds(1);
        const EngineStats stats = model.engine->stats();
        if (stats.failed || stats.seconds_since_progress > options.engine_stall_seconds) {
          return fail(reply, make_error(ErrorCode::kInternal, "The engine has stopped working."));
        }
      }
    }
    end(reply);
  }

 private:
  void take(Reply& reply, TextDelta delta) {
    const std::int32_t choice = delta.choice;
    if (!request_.stream) {
      TextDelta& whole = answers_[static_cast<std::size_t>(choice)];
      whole.choice = choice;
      return merge(whole, std::move(delta));
    }
    const Usage usage = reply.usage_of(choice);
    format_.append_events(delta, request_.continuous_usage ? &usage : nullptr, pending_);
  }

  // Which fields were sent and not read, so that a misspelt parameter does not stay unnoticed. A 400 would
  // break clients that send another server's extensions; vLLM, too, accepts them.
  void add_headers(HttpResponse& response) const {
    const std::string names = show_field_names(request_.ignored_fields);
    if (!names.empty()) response.headers.emplace_back("X-Quire-Ignored-Fields", names);
  }

  bool begin() {
    if (std::exchange(streaming_, true)) return true;
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    add_headers(head);
    last_write_ = Clock::now();
    return writer_.begin_stream(head);
  }

  bool flush() {
    if (pending_.empty()) return true;
    if (!begin()) return false;
    last_write_ = Clock::now();
    const bool written = writer_.write(pending_);
    pending_.clear();
    return written;
  }

  bool keep_alive(Clock::time_point now) {
    if (!request_.stream) return true;
    if (!streaming_) return now - begun_ < kHeaderPatience || begin();
    if (now - last_write_ < kKeepAlive) return true;
    last_write_ = now;
    return writer_.write(sse_comment("still working"));
  }

  void fail(Reply& reply, const Error& error) {
    reply.cancel();
    if (!request_.stream || (!streaming_ && pending_.empty())) {
      writer_.send(error_response(error));
      return;
    }
    // The status has been sent: the error is an event, and no [DONE] follows.
    pending_ += sse_event(dump_json(error_json(error)));
    if (flush()) writer_.end_stream(true);
  }

  void end(Reply& reply) {
    if (!request_.stream) {
      HttpResponse response;
      add_headers(response);
      response.body = dump_json(format_.whole(answers_, reply.usage()));
      writer_.send(response);
      return;
    }
    if (request_.include_usage) format_.append_usage_event(reply.usage(), pending_);
    pending_ += sse_event("[DONE]");
    if (flush()) writer_.end_stream(false);
  }

  const GenerateRequest& request_;
  ReplyFormat& format_;
  ResponseWriter& writer_;
  std::vector<TextDelta> answers_;
  std::string pending_;
  bool streaming_ = false;
  const Clock::time_point begun_;
  Clock::time_point last_write_;
};

}  // namespace

void deliver(const GenerateRequest& request, const Submission& submission, const ServedModel& model,
             const ApiOptions& options, Metrics* metrics, ReplyFormat& format, ResponseWriter& writer) {
  Reply reply(request, submission, model, metrics);
  Delivery delivery(request, format, writer);
  delivery.run(reply, model, options, submission.stream->num_choices());
}

}  // namespace quire
