// Runs or starts an operation, and returns its work to the caller.
#pragma once

#include <memory>

#include "comm_call.hpp"

namespace dsc {

inline void clear(dsc_work_t** work) {
  if (work) *work = nullptr;
}

// Opens a handle for the work of an operation that was started. If that fails, aborts the operation and waits
// for its end, because otherwise it would still use the caller's buffers after this call has failed.
dsc_work_t* give_out(Comm& comm, const std::shared_ptr<Work>& started);

void check_work_of_batch(const Comm& comm, dsc_work_t** work);

// Runs the call. If `work` is not null, only starts it. If a batch is open, adds it to the batch instead.
void execute(Comm& comm, Call& call, void* stream, dsc_work_t** work);
inline void execute(Comm& comm, Call&& call, void* stream, dsc_work_t** work) {
  execute(comm, call, stream, work);
}

}  // namespace dsc
