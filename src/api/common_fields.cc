#include "api/common_fields.h"

#include <charconv>
#include <utility>

#include <fmt/format.h>

namespace quire {
namespace {

void read_stop(FieldReader& fields, GenerateRequest& request) {
  const Json* stop = fields.find("stop");
  if (stop == nullptr) return;
  if (stop->is_string()) {
    request.stop = {stop->get<std::string>()};
  } else if (stop->is_array()) {
    fields.strings("stop", request.stop, kMaxStopStrings);
  } else {
    return fields.fail_type("stop", "a string or an array of strings", *stop);
  }
  for (const std::string& one : request.stop) {
    if (one.empty()) return fields.fail("stop", "must not hold an empty string: it would stop at once.");
    if (one.size() > kMaxStopBytes) {
      return fields.fail("stop", fmt::format("holds a string of {} bytes; at most {} are allowed.",
                                             one.size(), kMaxStopBytes));
    }
  }
}

void read_logit_bias(FieldReader& fields, const ServedModel& model, SamplingParams& sampling) {
  const Json* bias = fields.find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) return fields.fail_type("logit_bias", "an object of token ids and numbers", *bias);
  if (bias->size() > kMaxLogitBias) {
    return fields.fail("logit_bias",
                       fmt::format("has {} entries; at most {} are allowed.", bias->size(), kMaxLogitBias));
  }
  for (const auto& [key, value] : bias->items()) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= model.vocab_size) {
      return fields.fail("logit_bias", fmt::format("has the key \"{}\"; keys must be token ids from 0 to {}.",
                                                   key.substr(0, 64), model.vocab_size - 1));
    }
    if (!value.is_number() || !(value.get<double>() >= -100 && value.get<double>() <= 100)) {
      return fields.fail("logit_bias", fmt::format("must hold numbers from -100 to 100, got {} for token {}.",
                                                   describe_json(value), id));
    }
    sampling.logit_bias.emplace_back(id, value.get<float>());
  }
}

void read_stream(FieldReader& fields, GenerateRequest& request) {
  fields.boolean("stream", request.stream);
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!request.stream)
    return fields.fail("stream_options", "is only allowed together with \"stream\": true.");
  FieldReader inner(*options, "stream_options");
  inner.boolean("include_usage", request.include_usage);
  inner.boolean("continuous_usage_stats", request.continuous_usage);
  inner.accept("include_obfuscation");  // padding against traffic analysis; optional for a server
  if (!inner.ok()) {
    const Error error = inner.status().error();
    return fields.fail_with(error);
  }
}

// What the request forgets. Whether it fits this server's cache is checked as it is submitted.
void read_eviction(FieldReader& fields, const ServedModel& model, GenerateRequest& request) {
  KvEviction& eviction = request.eviction;
  eviction = model.eviction;
  if (fields.find("kv_eviction") != nullptr) {
    std::string policy;
    fields.string("kv_eviction", policy);
    if (policy == "h2o") {
      fields.fail("kv_eviction", "\"h2o\" is not offered; choose \"none\" or \"streaming\".",
                  ErrorCode::kUnsupported);
    } else if (policy != "none" && policy != "streaming") {
      fields.fail("kv_eviction",
                  fmt::format("must be \"none\" or \"streaming\", got \"{}\".", policy.substr(0, 64)));
    }
    eviction.policy = policy == "streaming" ? KvEvictionPolicy::kStreaming : KvEvictionPolicy::kNone;
  }
  fields.refuse("kv_heavy_hitters", "it belongs to the policy \"h2o\", which is not offered.");
  for (const char* name : {"kv_sinks", "kv_window"}) {
    if (fields.find(name) != nullptr && !eviction.evicts()) {
      fields.fail(name, "is only allowed together with \"kv_eviction\": \"streaming\".");
    }
  }
  fields.integer("kv_sinks", eviction.sinks, {0});
  fields.integer("kv_window", eviction.window, {1});
}

// Fields that other servers know and this one does not offer (yet). Each is named in a 400, not dropped.
void refuse_unsupported(FieldReader& fields) {
  fields.refuse("use_beam_search", "use sampling with \"n\" instead.", false);
  fields.refuse("length_penalty", "it belongs to beam search, which is not offered.", 1.0);
  fields.refuse("early_stopping", "it belongs to beam search, which is not offered.", false);
  fields.refuse("truncate_prompt_tokens", "shorten the prompt in the client.");
  fields.refuse("structured_outputs", "constrained output is not offered.");
  for (const char* name : {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar",
                           "json_schema", "guided_decoding_backend"}) {
    fields.refuse(name, "constrained output is not offered.");
  }
  if (const Json* format = fields.find("response_format")) {
    FieldReader inner(*format, "response_format");
    std::string type = "text";
    inner.string("type", type);
    if (!inner.ok()) return fields.fail_with(inner.status().error());
    if (type != "text") {
      fields.fail("response_format",
                  fmt::format("of type \"{}\" is not supported: constrained output is not offered.",
                              type.substr(0, 64)),
                  ErrorCode::kUnsupported);
    }
  }
  fields.refuse("logits_processors", "requests cannot bring code.");
  fields.refuse("vllm_xargs", "it is specific to vLLM's own extensions.", Json::object());
  fields.refuse("kv_transfer_params", "moving KV blocks between servers is not offered.");
  fields.refuse("logprob_token_ids", "use \"top_logprobs\" or \"logprobs\".");
  fields.refuse("thinking_token_budget", "thoughts are not told apart from the answer.");
  fields.refuse("repetition_detection", "use the penalties.");
  fields.refuse("prompt_embeds", "prompts are text or token ids.");
  fields.refuse("stream_interval", "every token is sent at once.", 1);
}

void accept_harmless(FieldReader& fields) {
  // About the caller or the caller's account, or hints that change no answer.
  for (const char* name : {"user", "metadata", "store", "service_tier", "safety_identifier",
                           "prompt_cache_key", "prompt_cache_retention", "session_id", "parallel_tool_calls",
                           "spaces_between_special_tokens", "cache_salt"}) {
    fields.accept(name);
  }
}

}  // namespace

void read_common_fields(FieldReader& fields, const ServedModel& model, const ApiOptions& options,
                        GenerateRequest& request) {
  SamplingParams& sampling = request.sampling;
  sampling.temperature = model.defaults.temperature;
  sampling.top_p = model.defaults.top_p;
  sampling.top_k = model.defaults.top_k;
  sampling.min_p = model.defaults.min_p;
  sampling.repetition_penalty = model.defaults.repetition_penalty;

  fields.string("model", request.model);
  fields.number("temperature", sampling.temperature, {0, 100});
  fields.number("top_p", sampling.top_p, {0, 1});
  std::optional<std::int64_t> top_k;
  fields.saturating("top_k", top_k, {-1});
  if (top_k) sampling.top_k = *top_k;
  fields.number("min_p", sampling.min_p, {0, 1});
  fields.number("presence_penalty", sampling.presence_penalty, {-2, 2});
  fields.number("frequency_penalty", sampling.frequency_penalty, {-2, 2});
  fields.number("repetition_penalty", sampling.repetition_penalty, {0, 10, true});
  read_logit_bias(fields, model, sampling);
  std::optional<std::int64_t> seed;
  fields.integer("seed", seed);
  if (seed) sampling.seed = static_cast<std::uint64_t>(*seed);

  fields.integer("n", request.n, {1, kMaxChoices});
  std::optional<std::int64_t> best_of;
  fields.integer("best_of", best_of, {1, kMaxChoices});
  if (best_of && *best_of != request.n) {
    fields.fail(
        "best_of",
        fmt::format("must be equal to 'n' ({}): choosing among more answers is not offered.", request.n));
  }

  read_stop(fields, request);
  fields.ids("stop_token_ids", sampling.stop_token_ids, model.vocab_size, kMaxStopTokenIds);
  fields.ids("allowed_token_ids", sampling.allowed_token_ids, model.vocab_size,
             static_cast<std::size_t>(model.vocab_size));
  if (const Json* allowed = fields.find("allowed_token_ids"); allowed != nullptr && allowed->empty()) {
    fields.fail("allowed_token_ids", "must not be empty: no token could be chosen.");
  }
  fields.strings("bad_words", request.bad_words, kMaxBadWords);
  for (const std::string& word : request.bad_words) {
    if (word.empty() || word.size() > kMaxBadWordBytes) {
      fields.fail("bad_words", fmt::format("must hold strings of 1 to {} bytes.", kMaxBadWordBytes));
    }
  }
  std::optional<std::int64_t> min_tokens;
  fields.saturating("min_tokens", min_tokens, {0});
  if (min_tokens) sampling.min_tokens = *min_tokens;
  fields.boolean("ignore_eos", sampling.ignore_eos);
  fields.boolean("include_stop_str_in_output", request.include_stop_in_output);
  fields.boolean("skip_special_tokens", request.skip_special_tokens);
  fields.boolean("add_special_tokens", request.add_special_tokens);
  fields.boolean("return_token_ids", request.return_token_ids);
  fields.boolean("return_tokens_as_token_ids", request.tokens_as_ids);
  fields.boolean("echo", request.echo);
  std::int64_t priority = 0;
  fields.integer("priority", priority, {-1'000'000, 1'000'000});
  request.priority = static_cast<std::int32_t>(priority);
  std::string request_id;
  fields.string("request_id", request_id);
  if (request_id.size() > 128) fields.fail("request_id", "must not be longer than 128 bytes.");
  if (!request_id.empty()) request.id += request_id;

  read_eviction(fields, model, request);
  read_stream(fields, request);
  std::optional<std::int64_t> prompt_logprobs;
  fields.integer("prompt_logprobs", prompt_logprobs, {0, options.max_logprobs});
  if (prompt_logprobs) {
    if (request.stream) fields.fail("prompt_logprobs", "is not available together with \"stream\": true.");
    sampling.num_prompt_logprobs = *prompt_logprobs;
    request.want_prompt_logprobs = true;
  }
  refuse_unsupported(fields);
  accept_harmless(fields);
}

}  // namespace quire
