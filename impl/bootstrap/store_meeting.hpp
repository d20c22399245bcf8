// The meeting of ranks of several hosts through a store. Every rank publishes its hello in the store, and
// rank 0 publishes the outcome for all.
#pragma once

#include <optional>
#include <string>

#include "base/error.hpp"
#include "bootstrap/meeting.hpp"
#include "store/store.hpp"

namespace dsc {

// Blocks until all ranks have arrived. Rank 0, whose process serves the store, hosts the meeting. Other ranks
// pass a ChannelStore; a rank whose connection ends counts as gone.
//
// Throws what meet() throws, with the same error on all ranks that arrived. CONFIG and TIMEOUT name processes
// and their hosts. Returns nullopt and sets `reason` if the caller should try again. This is the case if rank
// 0 or the connection to it has ended, or if the world that formed here is ending.
std::optional<MeetingResult> meet_in_store(Store& store, const MeetingSettings& settings, bool hosts,
                                           std::string& reason);

// Called by a host that cannot hold the meeting. Ranks that arrive before the deadline get the error `why`.
// Returns when `others` ranks have read it.
void refuse_in_store(Store& store, const Error& why, int32_t others, Deadline deadline);

// Called by the host before the store ends. Returns when `count` ranks have read the outcome, or when the
// deadline has passed.
void await_readers(Store& store, int32_t count, Deadline deadline);

// Called by the host when its world is about to end. Ranks that arrive later are asked to try again.
void announce_end(Store& store, Deadline deadline);

}  // namespace dsc
