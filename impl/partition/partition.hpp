// Which layers are on which stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace dsc {

// Part p holds the layers boundaries[p] to boundaries[p + 1] - 1.
using Boundaries = std::vector<size_t>;

struct PartitionRequest {
  std::string_view method;
  size_t layers = 0;
  size_t parts = 0;
  std::span<const double> weights;   // of each layer; "uniform" reads none
  std::span<const uint64_t> bytes;   // of each layer; empty: no limits
  std::span<const uint64_t> limits;  // of each part, or one for all
};

// The rules of dsc_pipe_partition(). Throws INVALID_ARG and OVERFLOW.
Boundaries partition_layers(const PartitionRequest& request);

// One log record for each part, on rank 0 or where there are no ranks: who plans does so on every rank.
void log_partition(const PartitionRequest& request, const Boundaries& boundaries) noexcept;

// The methods, for requests that were checked.
Boundaries partition_bottleneck(const PartitionRequest& request);
Boundaries partition_uniform(size_t layers, size_t parts);
Boundaries partition_uniform_v0(size_t layers, size_t parts);
Boundaries partition_balanced(std::span<const double> weights, size_t parts);
Boundaries partition_balanced_v0(std::span<const double> weights, size_t parts);

// INVALID_ARG with the first part that cannot hold what it would have to. For a request that has no
// partition within its limits.
[[noreturn]] void explain_limits(const PartitionRequest& request);

}  // namespace dsc
