// The tensors of broadcast_coalesced() on a device.
#pragma once

#include <span>

#include "bucket_plan/plan.hpp"
#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// Of some of the tensors; differs where their counts do.
uint64_t list_fingerprint(std::span<const Tensor> tensors, std::span<const size_t> indices);

// Collective: behind the device's default stream; waits for the end.
void broadcast_on_device(Comm& comm, std::span<const Tensor> tensors, const BucketPlan& plan, int root);

}  // namespace dsc
