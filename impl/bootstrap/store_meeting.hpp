// How the ranks of several hosts find each other: everybody leaves what he says about himself in one store,
// and rank 0 leaves the verdict for all.
#pragma once

#include <optional>
#include <string>

#include "bootstrap/meeting.hpp"
#include "store/channel.hpp"
#include "store/store.hpp"

namespace dsc {

// A store of one job, as one process sees it.
struct MeetingStore {
  Store& store;
  Channel& presence;  // when it ends, the server takes this process for gone
};

// Blocks until all ranks came. One of them hosts: rank 0, in whose process the store is. Throws as meet(),
// the same on every rank that came; CONFIG and TIMEOUT name processes with their hosts. Nothing, and the
// reason, if rank 0 went away, or if the world that formed here is ending: come again.
std::optional<MeetingResult> meet_in_store(const MeetingStore& at, const MeetingSettings& settings,
                                           bool hosts, std::string& reason);

// The one that hosts calls it, when its world is about to end: who comes then is asked to come again.
void announce_end(Store& store, Deadline deadline);

}  // namespace dsc
