// Assigns layers to stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace dsc {

// Part p consists of the layers boundaries[p] to boundaries[p + 1] - 1.
using Boundaries = std::vector<size_t>;

// Arguments of dsc_pipe_partition().
struct PartitionRequest {
  std::string_view method;
  size_t layers = 0;
  size_t parts = 0;
  std::span<const double> weights;   // one per layer; "uniform" ignores them
  std::span<const uint64_t> bytes;   // one per layer; empty if there are no limits
  std::span<const uint64_t> limits;  // one per part, or one for all
};

// Implements dsc_pipe_partition(). Throws INVALID_ARG and OVERFLOW.
Boundaries partition_layers(const PartitionRequest& request);

// Logs one record per part. Only rank 0, or a process without a rank, does so, because every rank computes
// the same partition.
void log_partition(const PartitionRequest& request, const Boundaries& boundaries) noexcept;

// The individual methods. The caller must have checked the request.
Boundaries partition_bottleneck(const PartitionRequest& request);
Boundaries partition_uniform(size_t layers, size_t parts);
Boundaries partition_uniform_v0(size_t layers, size_t parts);
Boundaries partition_balanced(std::span<const double> weights, size_t parts);
Boundaries partition_balanced_v0(std::span<const double> weights, size_t parts);

// Throws INVALID_ARG; the message names the first part that cannot hold its layers. Must be called only if no
// partition is within the limits.
[[noreturn]] void explain_limits(const PartitionRequest& request);

}  // namespace dsc
