// The layout of all buckets and gradients in one block of memory, in launch order of the buckets.
#pragma once

#include <span>
#include <vector>

#include "bucket_plan/plan.hpp"
#include "comm/tensor.hpp"

namespace dsc {

struct BucketLayoutOptions {
  size_t bucket_bytes = 0;
  size_t first_bucket_bytes = 0;
  bool single_first_bucket = false;
  size_t part_alignment = 1;        // alignment of each parameter in its bucket, in bytes
  std::span<const size_t> indices;  // user-defined buckets, in the form of a BucketPlan
  std::span<const size_t> starts;   // if empty, the buckets are planned
};

struct BucketLayout {
  struct Bucket {
    int32_t dtype;
    size_t count;   // elements, including padding between parameters
    size_t offset;  // bytes from the block's start, a multiple of kAlignment
  };
  static constexpr size_t kAlignment = 128;  // two cache lines, because processors fetch them in pairs

  BucketPlan plan;
  std::vector<Bucket> buckets;
  std::vector<size_t> param_offsets;  // bytes from the block's start
  std::vector<size_t> param_buckets;
  size_t bytes = 0;
  size_t part_alignment = 1;  // copied from the options
};

// Throws INVALID_ARG unless `starts` begins with 0 and never decreases.
void check_starts(std::span<const size_t> starts);

// Throws INVALID_ARG if a user-defined bucket is empty or mixes types, or if a parameter is in no bucket or
// in two.
BucketLayout make_bucket_layout(std::span<const Tensor> params, const BucketLayoutOptions& options);

}  // namespace dsc
