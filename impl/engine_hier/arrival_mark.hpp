// Records in the flight recorder that all ranks of an operation have arrived.
#pragma once

#include "base/clock.hpp"
#include "control/recorder.hpp"

namespace dsc {

// Set once all ranks of a collective, or the other end of a message, have arrived. A time-out after that
// means that data is missing.
class ArrivalMark {
 public:
  explicit ArrivalMark(Record& record) noexcept : record_(record) {}

  void set() noexcept {
    is_set_ = true;
    record_.meet(tick_now());
  }
  bool is_set() const noexcept { return is_set_; }

 private:
  Record& record_;
  bool is_set_ = false;
};

}  // namespace dsc
