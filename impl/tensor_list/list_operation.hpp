// Converts an operation on a list of tensors to calls on the buffers into which they are packed.
#pragma once

#include <span>

#include "bucket_plan/plan.hpp"
#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// An operation on all tensors of a list.
struct ListOperation {
  Call call;  // kind and all other fields that are equal for all packed buffers
  // If true, this rank contributes its elements; otherwise it contributes zeros, or nothing.
  bool sends;
  bool receives;  // if true, this rank's elements are replaced by the result
  // True for a reduction that the user requested. Such a reduction also runs in a group of one rank, and its
  // inputs are checked for NaNs and infinities.
  bool is_callers = false;

  // Makes ranks compare the whole list in every call: types and counts of all tensors, and which tensors are
  // packed together. The first call then detects lists that differ.
  void compare_list(std::span<const Tensor> tensors, const BucketPlan& plan);
  // Returns the call for a buffer that contains the tensors with these indices.
  Call on_buffer(Comm& comm, std::span<const Tensor> tensors, std::span<const size_t> indices, void* buffer,
                 size_t count) const;
  // Returns the call for a rank with an empty list. It fails if the lists of other ranks are not empty.
  Call on_nothing() const;
};

}  // namespace dsc
