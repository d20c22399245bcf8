// Assignment of layers to stages.
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
  std::span<const uint64_t> bytes;   // one per layer; empty: no limits
  std::span<const uint64_t> limits;  // one per part, or one for all
};

// Implements dsc_pipe_partition(). Throws INVALID_ARG and OVERFLOW.
Boundaries partition_layers(const PartitionRequest& request);

// Logs one record per part. Only rank 0, or a process without a rank, logs: every rank computes the same
// plan.
void log_partition(const PartitionRequest& request, const Boundaries& boundaries) noexcept;

// The individual methods; they require a request that was checked.
Boundaries partition_bottleneck(const PartitionRequest& request);
Boundaries partition_uniform(size_t layers, size_t parts);
Boundaries partition_uniform_v0(size_t layers, size_t parts);
Boundaries partition_balanced(std::span<const double> weights, size_t parts);
Boundaries partition_balanced_v0(std::span<const double> weights, size_t parts);

// Throws INVALID_ARG that names the first part that cannot hold its layers. The request must have no
// partition within its limits.
[[noreturn]] void explain_limits(const PartitionRequest& request);

}  // namespace dsc
