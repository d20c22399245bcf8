// The operations of coalesced.hpp for tensors on a device.
#pragma once

#include "reducer/list_operation.hpp"

namespace dsc {

// Collective: runs after the work on the device's default stream, and waits for the end.
void run_list_on_device(Comm& comm, std::span<const Tensor> tensors, const BucketPlan& plan,
                        const ListOperation& operation);

}  // namespace dsc
