#include "reducer/report.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/joined.hpp"
#include "base/json.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

std::string bucket_sizes(const BucketLayout& layout) {
  return joined(layout.buckets, ", ",
                [](const BucketLayout::Bucket& bucket) { return bucket.count * dtype_bytes(bucket.dtype); });
}

std::string bucket_params(const BucketLayout& layout) {
  std::string all;
  for (size_t b = 0; b < layout.plan.buckets(); ++b)
    all += (b == 0 ? "" : ", ") + joined(layout.plan.bucket(b), " ");
  return all;
}

std::string dtypes(const ParamList& params) {
  std::set<std::string> names;
  for (const Tensor& param : params.tensors) names.insert(dtype_name(param.dtype));
  return joined(names, ", ");
}

// Returns the size of a parameter. If its gradients are sparse, it has no elements in buckets, so the size is
// computed from its shape.
size_t bytes_of(const Tensor& param) {
  if (param.expect_sparse == 0) return param.bytes();
  return std::accumulate(param.shape.begin(), param.shape.end(), dtype_bytes(param.dtype),
                         [](size_t bytes, int64_t size) { return bytes * static_cast<size_t>(size); });
}

size_t bytes_of(const ParamList& params, std::span<const size_t> indices) {
  size_t bytes = 0;
  for (const size_t i : indices) bytes += bytes_of(params.tensors[i]);
  return bytes;
}

int64_t sparse_among(const ParamList& params) {
  return std::ranges::count_if(params.tensors, [](const Tensor& param) { return param.expect_sparse == 1; });
}

void write_model(JsonWriter& json, const ReducerReport& report) {
  std::vector<size_t> all(report.params->size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  json.field("world_size", report.group->size());
  json.field("rank", report.group->rank());
  json.field("iteration", report.iterations);
  json.field("num_parameter_tensors", all.size());
  json.field("num_sparse_parameter_tensors", sparse_among(*report.params));
  json.field("total_parameter_size_bytes", bytes_of(*report.params, all));
  json.field("output_device", report.params->tensors[0].device);
  json.field("broadcast_buffers", report.has_buffers ? 1 : 0);
  json.field("bucket_cap_bytes", report.bucket_bytes);
  json.field("first_bucket_bytes", report.first_bucket_bytes);
  json.field("find_unused_parameters", report.find_unused ? 1 : 0);
  json.field("static_graph", report.static_graph ? 1 : 0);
  json.field("join_uneven_inputs", report.joined ? 1 : 0);
  json.field("dtypes", dtypes(*report.params));
  json.field("backend_name", report.params->tensors[0].device >= 0 ? "device" : "host");
  json.field("comm_hook", report.hook);
  json.field("error", report.failure);
}

void write_buckets(JsonWriter& json, const ReducerReport& report) {
  const bool rebuilt = report.rebuilds > 0;
  json.field("bucket_sizes", bucket_sizes(*report.first_layout));
  json.field("has_rebuilt_buckets", rebuilt ? 1 : 0);
  json.field("rebuilds", report.rebuilds);
  json.field("rebuilt_bucket_sizes", rebuilt ? bucket_sizes(*report.layout) : "");
  json.field("rebuilt_per_bucket_param_indices", rebuilt ? bucket_params(*report.layout) : "");
  json.field("prev_iteration_grad_ready_order_indices", joined(report.ready_order, ", "));
  json.field("unused_parameter_size", bytes_of(*report.params, report.unused));
  json.field("unused_on_all_ranks", joined(report.unused_everywhere, ", "));
}

void write_times(JsonWriter& json, const ReducerReport& report) {
  const PhaseTimes& latest = report.phases.latest();
  const MeanPhaseTimes mean = report.phases.mean();
  json.field("forward_compute_time", latest.forward_compute());
  json.field("backward_compute_time", latest.backward_compute());
  json.field("backward_comm_time", latest.backward_comm());
  json.field("backward_compute_comm_overlap_time", latest.overlap());
  json.field("exposed_comm_time", latest.exposed());
  json.field("avg_forward_compute_time", mean.forward_compute);
  json.field("avg_backward_compute_time", mean.backward_compute);
  json.field("avg_backward_comm_time", mean.backward_comm);
  json.field("avg_backward_compute_comm_overlap_time", mean.overlap);
  json.field("avg_exposed_comm_time", mean.exposed);
  json.field("forward_compute_time_start", latest.forward_compute_start);
  json.field("backward_compute_time_start", latest.backward_compute_start);
  json.field("backward_compute_time_end", latest.backward_compute_end);
  json.field("backward_comm_time_start", latest.backward_comm_start);
  json.field("backward_comm_time_end", latest.backward_comm_end);
}

}  // namespace

std::string to_json(const ReducerReport& report) {
  JsonWriter json;
  json.begin_object();
  write_model(json, report);
  write_buckets(json, report);
  write_times(json, report);
  json.end_object();
  return json.take();
}

}  // namespace dsc
