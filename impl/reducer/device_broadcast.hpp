// broadcast_coalesced() for tensors on a device.
#pragma once

#include <span>

#include "bucket_plan/plan.hpp"
#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// Returns a fingerprint of the counts of some tensors, which differs if their counts differ.
uint64_t list_fingerprint(std::span<const Tensor> tensors, std::span<const size_t> indices);

// Collective: runs after the work on the device's default stream, and waits for the end.
void broadcast_on_device(Comm& comm, std::span<const Tensor> tensors, const BucketPlan& plan, int root);

}  // namespace dsc
