// The part of a rank that finds the meeting's name in use. It sends its hello to the host of the meeting and
// waits for the outcome.
#pragma once

#include <functional>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "bootstrap/meeting_wire.hpp"

namespace dsc {

// Returns the outcome from the host of the meeting. Returns DSC_IN_PROGRESS if the host has ended or asks
// this rank to try again.
MeetingOutcome follow_meeting(UniqueFd connection, const Hello& own, Deadline deadline,
                              const std::function<void()>& check);

}  // namespace dsc
