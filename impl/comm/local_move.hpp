// Operations of a group of one rank: data moves from the rank's input to its own output.
#pragma once

#include "comm/transfer.hpp"
#include "control/call.hpp"
#include "dtype/reduce.hpp"

namespace dsc {

// Moves the data of an operation. `transfer` describes the call for one rank. Returns the NaNs and infinities
// that the check found in the input. Throws CALLBACK if a user-defined operation fails.
NonFinite move_locally(const Call& call, const Transfer& transfer);

}  // namespace dsc
