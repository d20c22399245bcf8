// Calls on a communicator.
#pragma once

#include "comm/comm.hpp"
#include "exclusive_call.hpp"

namespace dsc {

inline Pinned<Comm> pin_comm(const void* handle) { return Pinned<Comm>(HandleKind::kComm, handle); }

using CommCall = ExclusiveCall<Comm, HandleKind::kComm>;

}  // namespace dsc
