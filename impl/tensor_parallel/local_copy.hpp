// The steps of mappings that need no other rank: identities and slices.
#pragma once

#include "comm/comm.hpp"
#include "tensor_parallel/tensor_map.hpp"

namespace dsc {

// Writes the result of a local step from the buffers of `call` to where it belongs, unless it is there
// already. On a device the copy is put on the call's stream; nothing is done and the result is false there if
// the caller `waits` for it by a work.
bool copy_locally(Comm& comm, const TensorMap& map, Call call, bool waits);

}  // namespace dsc
