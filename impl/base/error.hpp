// The only exception type of the library. It holds a record of fixed size, so that reporting an error never
// allocates.
#pragma once

#include <exception>

#include "base/failure.hpp"

namespace dsc {

class Error : public std::exception {
 public:
  explicit Error(const Failure& failure) noexcept : failure_(failure) {}
  Error(dsc_result_t code, std::string_view text) noexcept {
    failure_.code = code;
    failure_.text = text;
  }

  const char* what() const noexcept override { return failure_.text.c_str(); }
  dsc_result_t code() const noexcept { return failure_.code; }
  const Failure& failure() const noexcept { return failure_; }

 private:
  Failure failure_;
};

// Returns the name of a result, such as "DSC_ERR_TIMEOUT".
const char* result_name(dsc_result_t result) noexcept;

// Throws Error{code, formatted text}. The text says what was expected and what was found. guard() later adds
// the name of the API function.
[[noreturn]] void fail(dsc_result_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Like fail(), for a call that fails because of an earlier failure. The new record copies what is known of
// the earlier one, such as its ranks, its group and its operation.
[[noreturn]] void fail_because_of(const Failure& cause, dsc_result_t code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

// Like fail() with DSC_ERR_SYSTEM. `error` is an errno value. Its message and number are appended to the
// text, and the number is stored in the record.
[[noreturn]] void fail_errno(int error, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace dsc
