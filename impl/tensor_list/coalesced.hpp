// Operations on lists of tensors, which are packed into a few large buffers.
#pragma once

#include <span>

#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// Collective. Implements dsc_broadcast_coalesced().
void broadcast_coalesced(Comm& comm, std::span<const Tensor> tensors, int root, size_t buffer_bytes);

// Collective. Implements dsc_all_reduce_coalesced().
void all_reduce_coalesced(Comm& comm, std::span<const Tensor> tensors, int32_t op, size_t buffer_bytes);

// Collective. Replaces floating-point tensors by their mean over `active` ranks. This rank is one of these if
// `contributes` is true. All tensors must be in host memory, or all on the group's device.
void mean_coalesced(Comm& comm, std::span<const Tensor> tensors, int active, bool contributes);

}  // namespace dsc
