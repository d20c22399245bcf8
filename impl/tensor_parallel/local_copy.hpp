// The steps of mappings that need no other rank: identities and slices.
#pragma once

#include <cstdint>

#include "comm/comm.hpp"
#include "tensor_parallel/tensor_map.hpp"

namespace dsc {

// Writes the result of a local step, or of any step in a group of one rank, to `out`, unless it is there
// already. On a device the copy is put on the stream.
void copy_locally(Comm& comm, const TensorMap& map, const void* in, void* out, int32_t dtype, void* stream);

}  // namespace dsc
