// The steps of mappings that need no other rank: identities and slices.
#pragma once

#include "comm/comm.hpp"
#include "tensor_parallel/tensor_map.hpp"

namespace dsc {

// Writes the result of a local step from the send to the recv buffer of `call`, unless both are the same
// memory. On a device the copy is put on the call's stream. If the caller `waits` for it with a work, nothing
// is done on a device, and the result is false.
bool copy_locally(Comm& comm, const TensorMap& map, Call call, bool waits);

}  // namespace dsc
