// The only exception type of the library: a result code and a text in fixed storage, so that reporting an
// error never allocates.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <exception>

#include "dsc/types.h"

namespace dsc {

inline constexpr int kNoRank = -1;

// Details of an error: which ranks, group and operation it concerns. It is trivially copyable, so that
// keeping it never allocates.
struct ErrorPlace {
  uint64_t group = 0;
  uint64_t sequence = 0;  // sequence number of the operation in its group, from 1; 0 if there is none
  int64_t elapsed_ns = 0;
  uint64_t index = 0;  // index of the non-finite element, with NONFINITE
  int32_t rank = kNoRank;
  int32_t n_ranks = 0;
  int32_t ranks[64] = {};
  int32_t system_error = 0;  // errno value
  int32_t native_code = 0;   // error code of a backend
  bool revoked = false;
  char operation[32] = {};
};

// Carries a result code, a text and details; it has a fixed size.
class Error : public std::exception {
 public:
  static constexpr size_t kTextBytes = 512;

  Error(dsc_result_t code, const char* text, const ErrorPlace& place = {}) noexcept;

  const char* what() const noexcept override { return text_; }
  dsc_result_t code() const noexcept { return code_; }
  const ErrorPlace& place() const noexcept { return place_; }

 private:
  dsc_result_t code_;
  char text_[kTextBytes];
  ErrorPlace place_;
};

// Returns whether a failure concerns all ranks of a group and keeps its code on all of them. After any other
// failure, ranks that did not cause it get REVOKED.
constexpr bool is_group_fatal(dsc_result_t code) noexcept {
  return code == DSC_ERR_TIMEOUT || code == DSC_ERR_CALLBACK ||
         (code <= DSC_ERR_PEER_DEAD && code >= DSC_ERR_MISMATCH);
}

// Returns the name of a result, such as "DSC_ERR_TIMEOUT".
const char* result_name(dsc_result_t result) noexcept;

// Throws Error{code, formatted text}. The text says what was expected and what was found; the guard adds the
// name of the function.
[[noreturn]] void fail(dsc_result_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Like fail(DSC_ERR_SYSTEM), but appends the text and number of `error`, an errno value, and stores it in the
// place.
[[noreturn]] void fail_errno(int error, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace dsc
