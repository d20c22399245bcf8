// What a call that moves a schedule does first: finds it, and keeps other threads out.
#pragma once

#include "base/handle_table.hpp"
#include "pipeline_run/pipe_schedule.hpp"

namespace dsc {

inline Pinned<PipeSchedule> pin_pipe_schedule(const void* handle) {
  return Pinned<PipeSchedule>(HandleKind::kPipeSchedule, handle);
}

class PipeScheduleCall {
 public:
  explicit PipeScheduleCall(const void* handle) : schedule_(HandleKind::kPipeSchedule, handle) {
    if (schedule_->in_call.exchange(true, std::memory_order_acquire))
      fail(DSC_ERR_BUSY, "another thread is inside a call on this schedule");
  }
  ~PipeScheduleCall() { schedule_->in_call.store(false, std::memory_order_release); }
  PipeScheduleCall(const PipeScheduleCall&) = delete;
  PipeScheduleCall& operator=(const PipeScheduleCall&) = delete;

  PipeSchedule* operator->() const noexcept { return schedule_.get(); }
  PipeSchedule& operator*() const noexcept { return *schedule_; }

 private:
  Pinned<PipeSchedule> schedule_;
};

}  // namespace dsc
