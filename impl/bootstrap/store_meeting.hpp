// How the ranks of several hosts find each other: everybody leaves what he says about himself in one store,
// and rank 0 leaves the verdict for all.
#pragma once

#include <optional>
#include <string>

#include "base/error.hpp"
#include "bootstrap/meeting.hpp"
#include "store/store.hpp"

namespace dsc {

// Blocks until all ranks came. One of them hosts: rank 0, in whose process the store is. The others pass a
// ChannelStore: when its connection ends, they count as gone. Throws as meet(), the same on every rank that
// came; CONFIG and TIMEOUT name processes with their hosts. Nothing, and the reason, if rank 0 or the
// connection to it went away, or if the world that formed here is ending: come again.
std::optional<MeetingResult> meet_in_store(Store& store, const MeetingSettings& settings, bool hosts,
                                           std::string& reason);

// Instead, by the one that would host and cannot: all who come by the deadline hear why. Returns when so many
// have.
void refuse_in_store(Store& store, const Error& why, int32_t others, Deadline deadline);

// The one that hosts calls it before the store ends: so many others have read the verdict, or the deadline
// has passed.
void await_readers(Store& store, int32_t count, Deadline deadline);

// The one that hosts calls it, when its world is about to end: who comes then is asked to come again.
void announce_end(Store& store, Deadline deadline);

}  // namespace dsc
