// What a PMIx server tells of processes that ended. Extra evidence: many servers tell nothing, so nobody may
// wait for it.
#pragma once

#include <cstdint>
#include <vector>

#include "bootstrap/pmix_library.hpp"

namespace dsc {

struct PmixEvent {
  int32_t status;  // such as PMIX_ERR_PROC_ABORTED_BY_SIG
  int32_t rank;    // of this job; -1: not said, the connection to the server, or a process of another job
};

// Asks the server to tell `self`. Each event is logged (warn) and kept; does not wait.
void watch_pmix_events(const PmixLibrary& library, const pmix_proc_t& self);

// All that came, oldest first, at most 1,024. Any thread.
std::vector<PmixEvent> pmix_events();

// Whether the connection to the server was lost. This much libpmix sees by itself.
bool pmix_server_is_lost();

}  // namespace dsc
