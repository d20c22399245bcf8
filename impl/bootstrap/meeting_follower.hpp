// The part of a rank that finds the meeting's name taken: it sends its hello and waits for the outcome.
#pragma once

#include <functional>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "bootstrap/meeting_wire.hpp"

namespace dsc {

// Returns the host's outcome; DSC_IN_PROGRESS if the host went away or asks this rank to try again.
MeetingOutcome follow_meeting(UniqueFd connection, const Hello& own, Deadline deadline,
                              const std::function<void()>& check);

}  // namespace dsc
