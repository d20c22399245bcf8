// The one exception of the library: a result code and a text in fixed storage, so that reporting never
// allocates.
#pragma once

#include <cstdarg>
#include <exception>

#include "dsc/types.h"

namespace dsc {

inline constexpr int kNoRank = -1;

class Error : public std::exception {
 public:
  static constexpr size_t kTextBytes = 512;

  Error(dsc_result_t code, const char* text) noexcept;

  const char* what() const noexcept override { return text_; }
  dsc_result_t code() const noexcept { return code_; }

 private:
  dsc_result_t code_;
  char text_[kTextBytes];
};

// "DSC_ERR_TIMEOUT"
const char* result_name(dsc_result_t result) noexcept;

// Throws Error{code, formatted text}. The text says what was expected and what came; the boundary adds the
// function.
[[noreturn]] void fail(dsc_result_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// As fail(DSC_ERR_SYSTEM): appends the text and number of `error`, which is an errno value.
[[noreturn]] void fail_errno(int error, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace dsc
