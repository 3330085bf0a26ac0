// Purpose: stop the program on a programmer's error, saying which condition failed, with both values.
// Not for bad input: that is a Result (base/result.h).
#pragma once

#include <sstream>

namespace quire::internal {

// Collects a message; its destructor prints it and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Gives the streaming expression of a passing check the type void.
struct CheckVoidify {
  void operator&(std::ostream&) {}
};

}  // namespace quire::internal

#define QUIRE_CHECK(condition)                      \
  (condition) ? (void)0                             \
              : ::quire::internal::CheckVoidify() & \
                    ::quire::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()
#define QUIRE_CHECK_OP_(a, b, op) QUIRE_CHECK((a)op(b)) << "(" << (a) << " vs " << (b) << ") "
#define QUIRE_CHECK_EQ(a, b) QUIRE_CHECK_OP_(a, b, ==)
#define QUIRE_CHECK_NE(a, b) QUIRE_CHECK_OP_(a, b, !=)
#define QUIRE_CHECK_LT(a, b) QUIRE_CHECK_OP_(a, b, <)
#define QUIRE_CHECK_LE(a, b) QUIRE_CHECK_OP_(a, b, <=)
#define QUIRE_CHECK_GT(a, b) QUIRE_CHECK_OP_(a, b, >)
#define QUIRE_CHECK_GE(a, b) QUIRE_CHECK_OP_(a, b, >=)
