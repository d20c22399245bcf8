#include "dsc/work.h"

#include "base/guard.hpp"
#include "checks.hpp"
#include "comm/work.hpp"
#include "comm_call.hpp"
#include "deadline.hpp"
#include "error_info.hpp"
#include "session/engine_table.hpp"

namespace {

using PinnedWork = dsc::Pinned<dsc::Work>;

PinnedWork pin_work(const void* handle) { return PinnedWork(dsc::HandleKind::kWork, handle); }

dsc_result_t wait(dsc_work_t* work, int32_t timeout_ms) {
  const PinnedWork pinned = pin_work(work);
  return pinned->wait(dsc::deadline_after(timeout_ms)) ? DSC_OK : DSC_IN_PROGRESS;
}

}  // namespace

dsc_result_t dsc_work_test(dsc_work_t* work, int32_t* completed) {
  return dsc::guard(__func__, [&] {
    const PinnedWork pinned = pin_work(work);
    dsc::require(completed, "completed") = pinned->test() ? 1 : 0;
  });
}

dsc_result_t dsc_work_wait(dsc_work_t* work, int32_t timeout_ms, void* stream) {
  return dsc::guard(__func__, [&] {
    const PinnedWork pinned = pin_work(work);
    return pinned->wait_on(stream, dsc::deadline_after(timeout_ms)) ? DSC_OK : DSC_IN_PROGRESS;
  });
}

dsc_result_t dsc_work_synchronize(dsc_work_t* work, int32_t timeout_ms) {
  return dsc::guard(__func__, [&] { return wait(work, timeout_ms); });
}

dsc_result_t dsc_work_error_info(const dsc_work_t* work, dsc_error_info_t* info) {
  return dsc::guard(__func__, [&] { dsc::write_error_info(pin_work(work)->failure(), info); });
}

dsc_result_t dsc_work_eventfd(dsc_work_t* work, int32_t* descriptor) {
  return dsc::guard(__func__, [&] {
    const PinnedWork pinned = pin_work(work);
    dsc::require(descriptor, "descriptor") = pinned->event_fd();
  });
}

dsc_result_t dsc_work_destroy(dsc_work_t* work) {
  return dsc::guard(__func__, [&] {
    if (!work) return;
    PinnedWork pinned = pin_work(work);
    pinned.close();
    pinned->close_event_fd();
  });
}

dsc_result_t dsc_comm_progress(dsc_comm_t* comm, int32_t timeout_ms) {
  return dsc::guard(__func__, [&] {
    const dsc::Deadline deadline = dsc::deadline_after(timeout_ms);
    const bool idle = comm ? dsc::pin_comm(comm)->progress(deadline) : dsc::progress_all(deadline);
    return idle ? DSC_OK : DSC_IN_PROGRESS;
  });
}
