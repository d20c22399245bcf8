// Operations on lists of tensors, packed into few large ones.
#pragma once

#include <span>

#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// Collective, by the rules of dsc_broadcast_coalesced().
void broadcast_coalesced(Comm& comm, std::span<const Tensor> tensors, int root, size_t buffer_bytes);

// Collective, by the rules of dsc_all_reduce_coalesced().
void all_reduce_coalesced(Comm& comm, std::span<const Tensor> tensors, int32_t op, size_t buffer_bytes);

// Collective: replaces tensors of floats by their mean over `active` ranks, to which this rank belongs if it
// `contributes`. All tensors are in host memory, or all on the group's device.
void mean_coalesced(Comm& comm, std::span<const Tensor> tensors, int active, bool contributes);

}  // namespace dsc
