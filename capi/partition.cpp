#include "dsc/partition.h"

#include <algorithm>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "partition/partition.hpp"

namespace {

dsc_pipe_partition_options_t default_partition_options() {
  dsc_pipe_partition_options_t options{};
  options.struct_size = sizeof options;
  return options;
}

dsc::PartitionRequest read_request(const double* weights, size_t n_layers, size_t n_parts,
                                   const dsc_pipe_partition_options_t& options) {
  dsc::PartitionRequest request;
  request.method = options.method ? options.method : "bottleneck";
  request.layers = n_layers;
  request.parts = n_parts;
  const bool unread = request.method == "uniform" || request.method == "uniform_v0";
  if (!unread && n_layers > 0) request.weights = {&dsc::require(weights, "weights"), n_layers};
  if (options.layer_bytes) request.bytes = {options.layer_bytes, n_layers};
  if (options.n_part_limits > 0)
    request.limits = {&dsc::require(options.part_limits, "options->part_limits"), options.n_part_limits};
  else if (options.part_limits)
    dsc::fail(DSC_ERR_INVALID_ARG,
              "options->n_part_limits is 0, expected the number of options->part_limits");
  return request;
}

}  // namespace

dsc_result_t dsc_pipe_partition_options_init(dsc_pipe_partition_options_t* options, size_t struct_size) {
  return dsc::guard_pure(
      __func__, [&] { dsc::init_sized(options, struct_size, default_partition_options(), "options"); });
}

dsc_result_t dsc_pipe_partition(const double* weights, size_t n_layers, size_t n_parts,
                                const dsc_pipe_partition_options_t* options, size_t* boundaries) {
  return dsc::guard_pure(__func__, [&] {
    dsc::require(boundaries, "boundaries");
    const auto given = dsc::read_sized(options, default_partition_options(), "options");
    const dsc::PartitionRequest request = read_request(weights, n_layers, n_parts, given);
    const dsc::Boundaries found = dsc::partition_layers(request);
    std::ranges::copy(found, boundaries);
    dsc::log_partition(request, found);
  });
}
