// Operations of a group of one rank: its data moves from its own input to its own output.
#pragma once

#include "comm/transfer.hpp"
#include "control/call.hpp"
#include "dtype/reduce.hpp"

namespace dsc {

// Moves the data of an operation; `transfer` is that of the call for one rank. Returns what the call's check
// found in the input. Throws CALLBACK if a user-defined operation fails.
NonFinite move_locally(const Call& call, const Transfer& transfer);

}  // namespace dsc
