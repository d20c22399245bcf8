// Steps of mappings that involve no other rank: identities and slices.
#pragma once

#include "comm/comm.hpp"
#include "tensor_parallel/tensor_map.hpp"

namespace dsc {

// Copies the result of a local step from the send buffer to the recv buffer of `call`, unless both are the
// same memory. On a device, the copy is put on the call's stream. If `waits` is set, the caller wants to wait
// for the result with a work; the function then does nothing for device memory and returns false.
bool copy_locally(Comm& comm, const TensorMap& map, Call call, bool waits);

}  // namespace dsc
