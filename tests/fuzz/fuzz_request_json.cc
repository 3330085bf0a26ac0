// Any bytes as a request body: an error with a message, or a request whose values are in their ranges; never
// a crash, never an exception. The body goes through every parser that takes one.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "api/openai_chat.h"
#include "api/openai_completions.h"
#include "base/check.h"
#include "text/chat_template.h"

namespace {

using quire::GenerateRequest;

const quire::ServedModel& model() {
  static const auto chat_template = quire::ChatTemplate::parse(
      "{% for m in messages %}{{ m.content }}{{ m.tool_calls }}{% endfor %}{{ tools }}");
  static const quire::ServedModel served = [] {
    quire::ServedModel out;
    out.names = {"m"};
    out.chat_template = chat_template->get();
    out.max_model_len = 4096;
    out.vocab_size = 1000;
    return out;
  }();
  return served;
}

void check(const quire::Result<GenerateRequest>& request) {
  if (!request.ok()) {
    QUIRE_CHECK(!request.error().message.empty());
    return;
  }
  const quire::SamplingParams& sampling = request->sampling;
  QUIRE_CHECK(sampling.temperature >= 0 && sampling.temperature <= 100);
  QUIRE_CHECK(sampling.top_p >= 0 && sampling.top_p <= 1);
  QUIRE_CHECK(sampling.repetition_penalty > 0);
  QUIRE_CHECK(request->n >= 1 && request->n <= quire::kMaxChoices);
  for (const std::string& stop : request->stop) QUIRE_CHECK(!stop.empty());
  for (const auto& prompt : request->prompts) {
    for (const std::int32_t id : prompt.ids) QUIRE_CHECK(id >= 0 && id < 1000);
  }
  if (request->chat) {
    const auto text = model().chat_template->render(request->chat->context);
    QUIRE_CHECK(text.ok() || !text.error().message.empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = quire::parse_json(text);
  if (!body.ok()) {
    QUIRE_CHECK(!body.error().message.empty());
    return 0;
  }
  QUIRE_CHECK(!quire::dump_json(*body).empty());
  quire::ApiOptions options;
  check(quire::parse_chat_request(*body, "x", model(), options));
  options.trust_request_chat_template = true;
  check(quire::parse_completion_request(*body, "x", model(), options));
  return 0;
}
