// The one exception of the library: a result code and a text in fixed storage, so that reporting never
// allocates.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <exception>

#include "dsc/types.h"

namespace dsc {

inline constexpr int kNoRank = -1;

// What is known besides of whose fault it is, and where. Plain, so that keeping it never allocates.
struct ErrorPlace {
  uint64_t group = 0;
  uint64_t sequence = 0;  // operation number in the group, from 1; 0: none
  int64_t elapsed_ns = 0;
  uint64_t index = 0;  // element that is not finite, with NONFINITE
  int32_t rank = kNoRank;
  int32_t n_ranks = 0;
  int32_t ranks[64] = {};
  int32_t system_error = 0;  // errno
  int32_t native_code = 0;   // of a backend
  bool revoked = false;
  char operation[32] = {};
};

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

// A failure that befalls all ranks of a group; of others the ranks that did not meet it themselves hear
// REVOKED.
constexpr bool is_group_fatal(dsc_result_t code) noexcept {
  return code == DSC_ERR_TIMEOUT || code == DSC_ERR_CALLBACK ||
         (code <= DSC_ERR_PEER_DEAD && code >= DSC_ERR_MISMATCH);
}

// "DSC_ERR_TIMEOUT"
const char* result_name(dsc_result_t result) noexcept;

// Throws Error{code, formatted text}. The text says what was expected and what came; the boundary adds the
// function.
[[noreturn]] void fail(dsc_result_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// As fail(DSC_ERR_SYSTEM): appends the text and number of `error`, an errno value, and keeps it.
[[noreturn]] void fail_errno(int error, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace dsc
