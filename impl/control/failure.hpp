// Details of the failure of a group or of one operation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "dsc/types.h"

namespace dsc {

// The error that all members of a group report.
struct Failure {
  dsc_result_t code = DSC_OK;
  int rank = -1;               // first rank at fault, as an index in the group; -1 if unknown
  std::vector<int32_t> ranks;  // ranks at fault
  uint64_t group = 0;
  uint64_t sequence = 0;  // sequence number of the operation in the group, from 1; 0 if there is none
  int64_t elapsed_ns = 0;
  uint64_t index = 0;  // index of the non-finite element, with NONFINITE
  bool revoked = false;
  bool is_of_whole = false;  // a failure of the larger communicator, whose ranks it names
  int32_t native_code = 0;   // error code of a backend
  std::string operation;
  std::string text;
};

ErrorPlace place_of(const Failure& failure) noexcept;

[[noreturn]] void fail_with(const Failure& failure);

}  // namespace dsc
