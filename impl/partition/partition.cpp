#include "partition/partition.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/joined.hpp"
#include "base/log.hpp"
#include "base/log_rank.hpp"

namespace dsc {
namespace {

constexpr size_t kMostParts = (size_t{1} << 31) - 1;
// Limit on layers times parts for methods that search with a table.
constexpr size_t kMostCells = size_t{1} << 24;

using Method = Boundaries (*)(const PartitionRequest&);

// A method and its properties.
struct Row {
  std::string_view name;
  Method method;
  bool searches;  // true if the method needs weights and a table
  // True if the method leaves no part empty.
  bool non_empty;
};

constexpr std::array<Row, 5> kMethods{{
    {"bottleneck", partition_bottleneck, true, true},
    {"uniform", [](const PartitionRequest& r) { return partition_uniform(r.layers, r.parts); }, false, false},
    {"deepspeed_balanced", [](const PartitionRequest& r) { return partition_balanced(r.weights, r.parts); },
     true, false},
    {"uniform_v0", [](const PartitionRequest& r) { return partition_uniform_v0(r.layers, r.parts); }, false,
     false},
    {"deepspeed_balanced_v0",
     [](const PartitionRequest& r) { return partition_balanced_v0(r.weights, r.parts); }, true, false},
}};

const Row& find_method(std::string_view name) {
  const auto found = std::ranges::find(kMethods, name, &Row::name);
  if (found != kMethods.end()) return *found;
  fail(DSC_ERR_INVALID_ARG, "unknown method '%.*s'; expected one of: %s", static_cast<int>(name.size()),
       name.data(), joined(kMethods, ", ", &Row::name).c_str());
}

void check_weights(std::span<const double> weights) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0)
      fail(DSC_ERR_INVALID_ARG, "weights[%zu] is %g, expected a finite number of 0 or more", i, weights[i]);
    sum += weights[i];
  }
  if (!std::isfinite(sum)) fail(DSC_ERR_OVERFLOW, "the sum of the weights is beyond the range of a double");
}

void check_limits(const PartitionRequest& request, const Row& row) {
  const size_t limits = request.limits.size();
  if (limits == 0 && request.bytes.empty()) return;
  if (!row.non_empty)
    fail(DSC_ERR_INVALID_ARG, "method '%.*s' takes no limits of memory, expected 'bottleneck' with them",
         static_cast<int>(row.name.size()), row.name.data());
  if (limits == 0) fail(DSC_ERR_INVALID_ARG, "the bytes of layers were given, but no limit of a part");
  if (request.bytes.empty())
    fail(DSC_ERR_INVALID_ARG, "limits of parts were given, but not the bytes of layers");
  if (limits != 1 && limits != request.parts)
    fail(DSC_ERR_INVALID_ARG, "%zu limits were given, expected 1 for all parts, or %zu", limits,
         request.parts);
  uint64_t sum = 0;
  for (size_t i = 0; i < request.bytes.size(); ++i)
    if (__builtin_add_overflow(sum, request.bytes[i], &sum))
      fail(DSC_ERR_OVERFLOW, "the bytes of layers 0 to %zu do not fit 64 bits", i);
}

void check_size(const PartitionRequest& request, const Row& row) {
  if (request.parts == 0 || request.parts > kMostParts)
    fail(DSC_ERR_INVALID_ARG, "%zu parts, expected 1 to %zu", request.parts, kMostParts);
  if (row.non_empty && request.layers < request.parts)
    fail(DSC_ERR_INVALID_ARG, "%zu layers for %zu parts, expected at least one layer for each part",
         request.layers, request.parts);
  size_t cells = 0;
  const bool trivial = !row.non_empty && request.layers <= request.parts;
  if (row.searches && !trivial &&
      (__builtin_mul_overflow(request.layers + 1, request.parts, &cells) || cells > kMostCells))
    fail(DSC_ERR_OVERFLOW, "%zu layers and %zu parts, expected at most 2^24 as their product", request.layers,
         request.parts);
}

}  // namespace

// Does not log inside a callback: a callback that receives log records may itself plan a partition, and
// logging that would never end.
void log_partition(const PartitionRequest& request, const Boundaries& boundaries) noexcept {
  if (!log_enabled(DSC_LOG_LEVEL_INFO) || in_callback() || log_rank() > 0) return;
  for (size_t part = 0; part < request.parts; ++part) {
    const size_t first = boundaries[part], end = boundaries[part + 1];
    const auto weights =
        request.weights.empty() ? request.weights : request.weights.subspan(first, end - first);
    char layers[80] = "no layers", weight[40] = "";
    if (end == first + 1) std::snprintf(layers, sizeof layers, "layer %zu", first);
    if (end > first + 1)
      std::snprintf(layers, sizeof layers, "%zu layers, %zu to %zu", end - first, first, end - 1);
    if (!weights.empty())
      std::snprintf(weight, sizeof weight, ", weight %.6g", std::reduce(weights.begin(), weights.end()));
    log(DSC_LOG_LEVEL_INFO, "partition (%.*s): stage %zu of %zu has %s%s",
        static_cast<int>(request.method.size()), request.method.data(), part, request.parts, layers, weight);
  }
}

Boundaries partition_layers(const PartitionRequest& request) {
  const Row& row = find_method(request.method);
  check_size(request, row);
  if (row.searches) check_weights(request.weights);
  check_limits(request, row);
  return row.method(request);
}

}  // namespace dsc
