// Waiting of the host for the device of a group.
#pragma once

#include "comm/comm.hpp"
#include "device/context.hpp"

namespace dsc {

// Waits for an event, or for everything that is on a stream now. Returns false if the deadline passes first.
// Throws the failure of the group as soon as there is one, and TIMEOUT after the group's time-out, with a
// text that says that `what` of this rank were not there.
bool await_event(const Comm& group, DeviceEvent* event, const char* what,
                 Deadline deadline = Deadline::never());
void await_stream(const Comm& group, DeviceStream* stream, const char* what);

// Copies memory of the device to the host, behind the work on the stream. It waits for the stream first,
// because a copy to memory that the driver does not know may wait for the stream itself, without a deadline.
void read_device(const Comm& group, void* to, DeviceAddress from, size_t bytes, DeviceStream* stream,
                 const char* what);

}  // namespace dsc
