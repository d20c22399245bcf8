// The operations of coalesced.hpp for tensors on a device.
#pragma once

#include <span>

#include "bucket_plan/plan.hpp"
#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// What happens to the tensors of a list.
struct ListOperation {
  Call call;      // kind, and what else is the same for all packed buffers
  bool sends;     // this rank's elements take part; else zeros, or nothing
  bool receives;  // this rank's elements are replaced
  // Set for a reduction of the caller's: a group of one rank runs it too, and its inputs are checked.
  bool is_callers = false;
};

// Has ranks compare the counts of the tensors that are packed for a call, and shows them where they differ.
void compare_counts(Call& call, std::span<const Tensor> tensors, std::span<const size_t> indices);

// Collective: runs after the work on the device's default stream, and waits for the end.
void run_list_on_device(Comm& comm, std::span<const Tensor> tensors, const BucketPlan& plan,
                        const ListOperation& operation);

}  // namespace dsc
