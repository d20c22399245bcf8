// An operation on a list of tensors, as calls on the buffers into which they are packed.
#pragma once

#include <span>

#include "bucket_plan/plan.hpp"
#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// What an operation does with the tensors of a list.
struct ListOperation {
  Call call;      // kind, and everything else that is the same for all packed buffers
  bool sends;     // this rank's elements take part; otherwise zeros, or nothing
  bool receives;  // this rank's elements are replaced
  // Set for a reduction that the caller requested: a group of one rank also runs it, and its inputs are
  // checked.
  bool is_callers = false;

  // Makes every call compare the whole list, so that the first call finds lists that differ: types and counts
  // of all tensors, and which of them are packed together.
  void compare_list(std::span<const Tensor> tensors, const BucketPlan& plan);
  // Returns the call on a buffer that holds the tensors of these indices.
  Call on_buffer(Comm& comm, std::span<const Tensor> tensors, std::span<const size_t> indices, void* buffer,
                 size_t count) const;
  // Returns the call with which a rank with an empty list meets the others.
  Call on_nothing() const;
};

}  // namespace dsc
