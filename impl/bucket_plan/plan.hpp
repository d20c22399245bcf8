// Which tensor goes into which bucket: pure arithmetic, no memory is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dsc {

struct PlanTensor {
  size_t count;
  size_t element_bytes;
  int32_t dtype;
  int32_t device = -1;
  bool expect_sparse = false;
};

struct BucketPlan {
  std::vector<size_t> indices;  // tensor indices, bucket after bucket
  std::vector<size_t> starts;   // bucket b is indices[starts[b]] to indices[starts[b + 1] - 1]
  std::vector<size_t> limits;   // what each bucket was filled by

  size_t buckets() const noexcept { return limits.size(); }
  std::span<const size_t> bucket(size_t b) const {
    return std::span(indices).subspan(starts[b], starts[b + 1] - starts[b]);
  }
};

// The rules of dsc_bucket_plan(). An empty order is 0, 1, 2, ...; throws INVALID_ARG for an order that is not
// a permutation, and OVERFLOW when a tensor's or a bucket's bytes do not fit.
BucketPlan plan_buckets(std::span<const PlanTensor> tensors, std::span<const size_t> order,
                        std::span<const size_t> limits);

// The last bucket first, the order inside each kept.
BucketPlan reversed(const BucketPlan& plan);

}  // namespace dsc
