// Reports of a PMIx server about processes that have ended. Many servers report nothing, so this is only
// additional evidence.
#pragma once

#include <cstdint>
#include <vector>

#include "bootstrap/pmix_library.hpp"

namespace dsc {

// One report of the server.
struct PmixEvent {
  int32_t status;  // such as PMIX_ERR_PROC_ABORTED_BY_SIG
  int32_t rank;  // rank of this job; -1: not given, the connection to the server, or a process of another job
};

// Asks the server to report events to `self`. Each event is logged as a warning and kept. Does not wait.
void watch_pmix_events(const PmixLibrary& library, const pmix_proc_t& self);

// Returns all events, oldest first, at most 1,024. Any thread.
std::vector<PmixEvent> pmix_events();

// Returns whether the connection to the server was lost, which libpmix detects by itself.
bool pmix_server_is_lost();

}  // namespace dsc
