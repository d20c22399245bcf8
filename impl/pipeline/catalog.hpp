// Schedules by name.
#pragma once

#include <memory>

#include "pipeline/ir.hpp"

namespace dsc {

// Throws INVALID_ARG for a name or number that is wrong, UNSUPPORTED for a schedule that this version does
// not offer, OVERFLOW for one too large to be lowered.
std::unique_ptr<Schedule> make_schedule(ScheduleSpec spec);

}  // namespace dsc
