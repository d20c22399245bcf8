#include "bucket_plan/plan.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"

namespace dsc {
namespace {

// A bucket to which tensors are still being added.
struct Bucket {
  std::vector<size_t> indices;
  size_t limit = 0;
  size_t first_position = 0;  // position of the bucket's first tensor in the order
};

// The bucket that is being filled for one pair of dtype and device.
struct Filling {
  Bucket bucket;
  size_t bytes = 0;
  size_t limit_index = 0;  // index of the limit that applies to this bucket
};

void check_order(std::span<const size_t> order, size_t n) {
  if (order.empty()) return;
  if (order.size() != n) fail(DSC_ERR_INVALID_ARG, "order has %zu entries for %zu tensors", order.size(), n);
  std::vector<bool> seen(n);
  for (size_t position = 0; position < n; ++position) {
    const size_t index = order[position];
    if (index >= n) fail(DSC_ERR_INVALID_ARG, "order[%zu] is %zu, expected 0 to %zu", position, index, n - 1);
    if (seen[index]) fail(DSC_ERR_INVALID_ARG, "order[%zu] repeats tensor %zu", position, index);
    seen[index] = true;
  }
}

size_t grown(size_t bytes, const PlanTensor& tensor, size_t index) {
  size_t added = 0;
  size_t sum = 0;
  if (__builtin_mul_overflow(tensor.count, tensor.element_bytes, &added) ||
      __builtin_add_overflow(bytes, added, &sum)) {
    fail(DSC_ERR_OVERFLOW, "the bucket of tensor %zu (%zu elements of %zu bytes) is larger than any memory",
         index, tensor.count, tensor.element_bytes);
  }
  return sum;
}

// Fills one bucket at a time for each pair of dtype and device. A bucket is closed by the tensor that reaches
// its limit, and the next bucket of the pair uses the next limit. Each sparse tensor gets a separate bucket.
std::vector<Bucket> assign(std::span<const PlanTensor> tensors, std::span<const size_t> order,
                           std::span<const size_t> limits) {
  std::vector<Bucket> closed;
  std::map<std::pair<int32_t, int32_t>, Filling> fillings;
  for (size_t position = 0; position < tensors.size(); ++position) {
    const size_t index = order.empty() ? position : order[position];
    const PlanTensor& tensor = tensors[index];
    if (tensor.expect_sparse) {
      closed.push_back({{index}, 0, position});
      continue;
    }
    Filling& filling = fillings[{tensor.dtype, tensor.device}];
    if (filling.bucket.indices.empty()) filling.bucket.first_position = position;
    filling.bucket.indices.push_back(index);
    filling.bytes = grown(filling.bytes, tensor, index);
    filling.bucket.limit = limits[filling.limit_index];
    if (filling.bytes < filling.bucket.limit) continue;
    closed.push_back(std::exchange(filling.bucket, {}));
    filling.bytes = 0;
    if (filling.limit_index + 1 < limits.size()) ++filling.limit_index;
  }
  const auto unfilled = static_cast<std::ptrdiff_t>(closed.size());
  for (auto& [key, filling] : fillings) {
    if (!filling.bucket.indices.empty()) closed.push_back(std::move(filling.bucket));
  }
  std::ranges::sort(closed.begin() + unfilled, closed.end(), {}, &Bucket::first_position);
  return closed;
}

}  // namespace

BucketPlan plan_buckets(std::span<const PlanTensor> tensors, std::span<const size_t> order,
                        std::span<const size_t> limits) {
  if (tensors.empty()) fail(DSC_ERR_INVALID_ARG, "no tensors to plan, expected 1 or more");
  if (limits.empty()) fail(DSC_ERR_INVALID_ARG, "no limits to plan with, expected 1 or more");
  check_order(order, tensors.size());
  std::vector<Bucket> buckets = assign(tensors, order, limits);
  if (order.empty()) {
    // Tensors were added in index order, so the first tensor of a bucket has the smallest index of the
    // bucket.
    std::ranges::sort(buckets, {}, &Bucket::first_position);
  }
  BucketPlan plan;
  plan.starts.push_back(0);
  for (const Bucket& bucket : buckets) {
    plan.indices.insert(plan.indices.end(), bucket.indices.begin(), bucket.indices.end());
    plan.starts.push_back(plan.indices.size());
    plan.limits.push_back(bucket.limit);
  }
  return plan;
}

BucketPlan reversed(const BucketPlan& plan) {
  BucketPlan result;
  result.starts.push_back(0);
  for (size_t b = plan.buckets(); b-- > 0;) {
    const auto bucket = plan.bucket(b);
    result.indices.insert(result.indices.end(), bucket.begin(), bucket.end());
    result.starts.push_back(result.indices.size());
    result.limits.push_back(plan.limits[b]);
  }
  return result;
}

}  // namespace dsc
