// Assigns tensors to buckets. This is pure arithmetic; no tensor data is accessed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dsc {

// The properties of a tensor that affect its bucket.
struct PlanTensor {
  size_t count;
  size_t element_bytes;
  int32_t dtype;
  int32_t device = -1;
  bool expect_sparse = false;
};

// The buckets of a plan, in order.
struct BucketPlan {
  // Indices of the tensors: those of bucket 0, then those of bucket 1, and so on.
  std::vector<size_t> indices;
  std::vector<size_t> starts;  // bucket b is indices[starts[b]] to indices[starts[b + 1] - 1]
  std::vector<size_t> limits;  // the limit that applied to each bucket, in bytes

  size_t buckets() const noexcept { return limits.size(); }
  std::span<const size_t> bucket(size_t b) const {
    return std::span(indices).subspan(starts[b], starts[b + 1] - starts[b]);
  }
};

// Implements dsc_bucket_plan(). An empty order means 0, 1, 2, ... Throws INVALID_ARG if the order is not a
// permutation, and OVERFLOW if the size of a tensor or bucket exceeds the range of size_t.
BucketPlan plan_buckets(std::span<const PlanTensor> tensors, std::span<const size_t> order,
                        std::span<const size_t> limits);

// Reverses the order of the buckets. The order of tensors inside each bucket does not change.
BucketPlan reversed(const BucketPlan& plan);

}  // namespace dsc
