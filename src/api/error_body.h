// Purpose: the one place that turns an Error into HTTP: status, and the body that OpenAI clients read.
// Shape: {"error": {"message", "type", "param", "code"}}. type is OpenAI's or llama.cpp's name of the kind;
// code is OpenAI's string where it has one (model_not_found, context_length_exceeded, invalid_api_key), else
// the HTTP status as a number, as vLLM and llama.cpp do. Thread: plain functions.
#pragma once

#include <string>
#include <string_view>

#include "api/json.h"
#include "base/result.h"
#include "net/http_message.h"

namespace quire {

int http_status(const Error& error);
Json error_json(const Error& error);
// A model that is not served here. name: a client's text, shortened and made safe to show.
Error unknown_model(std::string_view name);
// With Retry-After where the same request may work later.
HttpResponse error_response(const Error& error);
// For errors of HTTP itself. code: a string that replaces the number, or "".
Json http_error_json(int status, std::string_view message, std::string_view code = {});
HttpResponse http_error_response(int status, std::string_view message, std::string_view code = {});

}  // namespace quire
