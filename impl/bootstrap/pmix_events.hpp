// Reports of a PMIx server about processes that have ended. Many servers send no such reports, so libdsc does
// not rely on them.
#pragma once

#include <cstdint>
#include <vector>

#include "bootstrap/pmix_library.hpp"

namespace dsc {

// One report of the server.
struct PmixEvent {
  int32_t status;  // such as PMIX_ERR_PROC_ABORTED_BY_SIG
  // Rank of this job. It is -1 if the event names no rank, if it is about the connection to the server, or if
  // the process belongs to another job.
  int32_t rank;
};

// Asks the server to report events about the job of `self`. Each event is kept, and logged as a warning. Does
// not wait.
void watch_pmix_events(const PmixLibrary& library, const pmix_proc_t& self);

// Returns the events, oldest first, at most 1,024. Any thread may call this.
std::vector<PmixEvent> pmix_events();

// Returns whether the connection to the server was lost, which libpmix detects by itself.
bool pmix_server_is_lost();

}  // namespace dsc
