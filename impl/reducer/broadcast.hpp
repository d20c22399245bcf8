// Broadcasts one rank's tensors to all ranks, packed into few large operations.
#pragma once

#include <span>

#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// Collective, by the rules of dsc_broadcast_coalesced().
void broadcast_coalesced(Comm& comm, std::span<const Tensor> tensors, int root, size_t buffer_bytes);

}  // namespace dsc
