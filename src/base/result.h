// Purpose: how a function at a border (flag, file, request) says that its input is bad.
// In/out: Result<T> holds a T or an Error; Status is Result<void>. A programmer's error is a CHECK, not an
// Error. Thread: plain values.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace quire {

// What kind of refusal this is; api/ maps it to an HTTP status, apps/ to an exit code.
enum class ErrorCode {
  kInvalid,      // the input is wrong: 400
  kNotFound,     // it names something that is not there: 404
  kUnsupported,  // understood, but not offered: 400
  kTooLarge,     // over a stated limit: 413 or 400
  kOverloaded,   // refused now, may work later: 429/503
  kUnavailable,  // loading or shutting down: 503
  kIo,           // a file or a connection failed
  kInternal,     // our own failure: 500
  kCancelled,    // the client went away
};

// message says what is wrong, where, and what to do. param names the request field or flag, if there is one.
struct Error {
  ErrorCode code = ErrorCode::kInvalid;
  std::string message;
  std::string param;
};

inline Error make_error(ErrorCode code, std::string message, std::string param = {}) {
  return Error{code, std::move(message), std::move(param)};
}
inline Error invalid(std::string message, std::string param = {}) {
  return Error{ErrorCode::kInvalid, std::move(message), std::move(param)};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & {
    QUIRE_CHECK(ok()) << error().message;
    return std::get<0>(state_);
  }
  const T& value() const& {
    QUIRE_CHECK(ok()) << error().message;
    return std::get<0>(state_);
  }
  T&& value() && {
    QUIRE_CHECK(ok()) << error().message;
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};
using Status = Result<void>;

}  // namespace quire

// Returns the error of `expr` from the calling function, or binds its value to `decl`.
#define QUIRE_CONCAT_(a, b) a##b
#define QUIRE_CONCAT(a, b) QUIRE_CONCAT_(a, b)
#define QUIRE_TRY_IMPL_(tmp, decl, expr) \
  auto tmp = (expr);                     \
  if (!tmp.ok()) return tmp.error();     \
  decl = std::move(*tmp)
#define QUIRE_TRY(decl, expr) QUIRE_TRY_IMPL_(QUIRE_CONCAT(quire_try_, __LINE__), decl, expr)
#define QUIRE_RETURN_IF_ERROR(expr)                        \
  do {                                                     \
    auto quire_status_ = (expr);                           \
    if (!quire_status_.ok()) return quire_status_.error(); \
  } while (false)
