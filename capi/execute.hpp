// Runs or starts an operation, and gives the caller its work.
#pragma once

#include <memory>

#include "comm_call.hpp"

namespace dsc {

inline void clear(dsc_work_t** work) {
  if (work) *work = nullptr;
}

// Work that the caller could not be given would go on in buffers that the caller takes for its own, so it
// ends first.
dsc_work_t* give_out(Comm& comm, const std::shared_ptr<Work>& started);

void check_work_of_batch(const Comm& comm, dsc_work_t** work);

// Runs the call, or starts it if `work` is not null, or adds it to an open batch.
void execute(Comm& comm, Call& call, void* stream, dsc_work_t** work);
inline void execute(Comm& comm, Call&& call, void* stream, dsc_work_t** work) {
  execute(comm, call, stream, work);
}

}  // namespace dsc
