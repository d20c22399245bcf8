// A rank that found the meeting's name taken: says hello and waits for the verdict.
#pragma once

#include <functional>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "bootstrap/meeting_wire.hpp"

namespace dsc {

// The host's verdict; DSC_IN_PROGRESS if it went away or asks to come again.
Verdict follow_meeting(UniqueFd connection, const Claim& claim, Deadline deadline,
                       const std::function<void()>& check);

}  // namespace dsc
