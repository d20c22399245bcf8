// An operation on a list of tensors, as calls on the buffers into which they are packed.
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

  // Makes every call compare the whole list, so that lists which differ are found by the first one: types
  // and counts of all tensors, and which of them are packed together.
  void compare_list(std::span<const Tensor> tensors, const BucketPlan& plan);
  // Returns the call on a buffer that holds the tensors of these indices.
  Call on_buffer(Comm& comm, std::span<const Tensor> tensors, std::span<const size_t> indices, void* buffer,
                 size_t count) const;
  // Returns the call by which a rank whose list is empty meets the others.
  Call on_nothing() const;
};

}  // namespace dsc
