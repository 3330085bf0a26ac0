#include "api/error_body.h"

#include <utility>

#include <fmt/format.h>

#include "text/utf8.h"

namespace quire {
namespace {

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 500:
      return "server_error";
    case 503:
      return "unavailable_error";
    default:
      return "invalid_request_error";
  }
}

Json body(int status, std::string_view message, std::string_view param, std::string_view code) {
  Json error = {{"message", replace_invalid_utf8(message)}, {"type", error_type(status)}};
  error["param"] = param.empty() ? Json(nullptr) : Json(replace_invalid_utf8(param));
  error["code"] = code.empty() ? Json(status) : Json(std::string(code));
  return {{"error", std::move(error)}};
}

HttpResponse response(int status, const Json& json) {
  HttpResponse out;
  out.status = status;
  out.body = dump_json(json);
  if (status == 503 || status == 429) out.headers.emplace_back("Retry-After", "1");
  if (status == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

}  // namespace

int http_status(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalid:
    case ErrorCode::kUnsupported:
    case ErrorCode::kTooLarge:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kOverloaded:
    case ErrorCode::kUnavailable:
      return 503;
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
    case ErrorCode::kCancelled:
      return 500;
  }
  return 500;
}

Json error_json(const Error& error) {
  std::string_view code;
  if (error.code == ErrorCode::kTooLarge && error.param == "prompt") code = "context_length_exceeded";
  if (error.code == ErrorCode::kNotFound && error.param == "model") code = "model_not_found";
  return body(http_status(error), error.message, error.param, code);
}

Error unknown_model(std::string_view name) {
  return make_error(ErrorCode::kNotFound,
                    fmt::format("The model \"{}\" is not served here; /v1/models lists what is.",
                                replace_invalid_utf8(name.substr(0, 128))),
                    "model");
}

HttpResponse error_response(const Error& error) {
  return response(http_status(error), error_json(error));
}

Json http_error_json(int status, std::string_view message, std::string_view code) {
  return body(status, message, {}, code);
}

HttpResponse http_error_response(int status, std::string_view message, std::string_view code) {
  return response(status, http_error_json(status, message, code));
}

}  // namespace quire
