// What is known about a failure of a group or of one operation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "dsc/types.h"

namespace dsc {

struct Failure {
  dsc_result_t code = DSC_OK;
  int rank = -1;               // first rank at fault, in the group; -1: not known
  std::vector<int32_t> ranks;  // ranks at fault
  uint64_t group = 0;
  uint64_t sequence = 0;  // operation number in the group, from 1; 0: none
  int64_t elapsed_ns = 0;
  uint64_t index = 0;  // element that is not finite, with NONFINITE
  bool revoked = false;
  int32_t native_code = 0;  // of a backend
  std::string operation;
  std::string text;
};

ErrorPlace place_of(const Failure& failure) noexcept;

[[noreturn]] void fail_with(const Failure& failure);

}  // namespace dsc
