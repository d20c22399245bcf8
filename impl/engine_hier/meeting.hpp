// When the ranks of an operation have met.
#pragma once

#include "base/clock.hpp"
#include "control/recorder.hpp"

namespace dsc {

// A time-out after the meeting is one of data: all ranks, or the other end of a message, had come.
class Meeting {
 public:
  explicit Meeting(Record& record) noexcept : record_(record) {}

  void note() noexcept {
    has_been_ = true;
    record_.meet(tick_now());
  }
  bool has_been() const noexcept { return has_been_; }

 private:
  Record& record_;
  bool has_been_ = false;
};

}  // namespace dsc
