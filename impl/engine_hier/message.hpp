// Messages between two ranks on different hosts.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "comm/comm_state.hpp"
#include "control/call.hpp"
#include "engine_hier/arrival_mark.hpp"
#include "engine_hier/hier_links.hpp"

namespace dsc {

// Sends or receives a message after both ends have compared their calls. Throws MISMATCH if these differ,
// and what the transport throws; the errors name ranks of the group. One thread at a time for each peer and
// direction.
void pass_message(HierLinks& links, const CommState& state, const Call& call, uint64_t sequence,
                  ArrivalMark& arrival, Deadline deadline);

}  // namespace dsc
