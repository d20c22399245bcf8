// The part of a rank that finds the meeting's name taken: it sends its claim and waits for the verdict.
#pragma once

#include <functional>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "bootstrap/meeting_wire.hpp"

namespace dsc {

// Returns the host's verdict; DSC_IN_PROGRESS if the host went away or asks this rank to try again.
Verdict follow_meeting(UniqueFd connection, const Claim& claim, Deadline deadline,
                       const std::function<void()>& check);

}  // namespace dsc
