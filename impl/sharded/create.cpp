// Checks that all ranks agree before shards are made.
#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/joined.hpp"
#include "comm/verify.hpp"
#include "dtype/dtype.hpp"
#include "sharded/sharded.hpp"

namespace dsc {
namespace {

template <typename List>
std::string listed(const List& numbers) {
  return numbers.empty() ? "none" : joined(numbers, " ");
}

// Returns the settings that must be equal on all ranks. Differences are reported in this order.
std::vector<Setting> settings(const ShardedOptions& options, bool on_device,
                              const std::optional<TensorProblem>& problem) {
  const ShardRules& rules = options.rules;
  return {{"stage", std::to_string(options.stage)},
          {"layout", std::to_string(rules.layout)},
          {"average", std::to_string(options.average)},
          {"grad_dtype", std::to_string(options.grad_dtype)},
          {"shard_size", std::to_string(options.shard_size)},
          {"prefetch", std::to_string(options.prefetch)},
          {"sync", std::to_string(options.sync)},
          {"max_live_bytes", std::to_string(options.max_live_bytes)},
          {"bucket_elements", std::to_string(rules.bucket_elements)},
          {"alignment", std::to_string(rules.alignment)},
          {"wide_padding", std::to_string(rules.wide_padding)},
          {"unit_starts", listed(rules.unit_starts)},
          {"alone", listed(options.alone)},
          {"the memory of parameters", on_device ? "a device" : "the host"},
          {"the first unusable parameter", problem ? problem->text : "none"}};
}

void check_options(const ShardedOptions& options, std::span<const Tensor> params, int ranks) {
  if (params.empty()) fail(DSC_ERR_INVALID_ARG, "n_params is 0, expected 1 or more");
  if (options.stage < 1 || options.stage > 3)
    fail(DSC_ERR_INVALID_ARG, "stage is %d, expected 1, 2 or 3", options.stage);
  if (options.average < DSC_AVERAGE_PRE || options.average > DSC_AVERAGE_NONE)
    fail(DSC_ERR_INVALID_ARG, "average is %d, expected 1 (pre), 2 (post) or 3 (none)", options.average);
  if (options.sync != 0 && options.sync != 1)
    fail(DSC_ERR_INVALID_ARG, "sync is %d, expected 0 or 1", options.sync);
  if (options.prefetch < 0) fail(DSC_ERR_INVALID_ARG, "prefetch is %d, expected 0 or more", options.prefetch);
  if (options.shard_size < 0 || (options.shard_size > 0 && ranks % options.shard_size != 0))
    fail(DSC_ERR_INVALID_ARG, "shard_size is %d, expected 0 or a divisor of the %d ranks", options.shard_size,
         ranks);
}

// Returns the type of a parameter's gradient.
int32_t grad_dtype_of(const Tensor& param, size_t index, int32_t wanted) {
  const int32_t dtype = wanted == 0 ? param.dtype : wanted;
  const std::string name = label(param.name, index);
  if (!is_dtype(dtype) || !is_floating(dtype))
    fail(DSC_ERR_UNSUPPORTED, "%s: gradients of %s, expected a floating-point type", name.c_str(),
         is_dtype(dtype) ? dtype_name(dtype) : ("type " + std::to_string(dtype)).c_str());
  const bool converts = is_floating(param.dtype) && param.dtype != DSC_DTYPE_F64 && dtype != DSC_DTYPE_F64 &&
                        (param.dtype == DSC_DTYPE_F32 || dtype == DSC_DTYPE_F32);
  if (dtype != param.dtype && !converts)
    fail(DSC_ERR_UNSUPPORTED,
         "%s: gradients of %s for a parameter of %s; expected that type, or one of them f32", name.c_str(),
         dtype_name(dtype), dtype_name(param.dtype));
  return dtype;
}

ShardedPlan make_plan(std::span<const Tensor> params, const ShardedOptions& options, int ranks) {
  ShardedPlan plan;
  for (size_t i = 0; i < params.size(); ++i) {
    const bool alone = !options.alone.empty() && options.alone[i] != 0;
    plan.tensors.push_back({params[i].count, params[i].dtype, alone});
  }
  ShardRules rules = options.rules;
  rules.shards = static_cast<size_t>(options.shard_size == 0 ? ranks : options.shard_size);
  plan.layout = make_shard_layout(plan.tensors, rules);
  plan.grad_dtypes.resize(plan.layout.buckets.size());
  for (size_t i = 0; i < params.size(); ++i)
    plan.grad_dtypes[plan.layout.locations[i].bucket] = grad_dtype_of(params[i], i, options.grad_dtype);
  return plan;
}

// Checks that max_live_bytes is large enough for each unit alone.
void check_live_bytes(const ShardedPlan& plan, const ShardedOptions& options, bool on_device) {
  if (options.stage < 2 || options.max_live_bytes == 0) return;
  std::vector<int32_t> dtypes;
  for (const ShardBucket& bucket : plan.layout.buckets) dtypes.push_back(bucket.dtype);
  size_t most = 0;
  for (const auto& of : {dtypes, plan.grad_dtypes}) {
    if (options.stage < 3 && &of == &dtypes) continue;
    for (const auto& unit : bucket_offsets(plan.layout, of, 1, UnitMemory::alignment(on_device, false)).units)
      most = std::max(most, unit.bytes);
  }
  if (most > options.max_live_bytes)
    fail(DSC_ERR_INVALID_ARG, "max_live_bytes is %zu, expected at least the %zu of the largest unit",
         options.max_live_bytes, most);
}

void check_device(Comm& comm, const ShardedPlan& plan, const ShardedOptions& options) {
  Call call;
  call.kind = OpKind::kReduceScatter;
  call.op = options.average == DSC_AVERAGE_POST ? DSC_OP_AVG : DSC_OP_SUM;
  Space::of_device(comm)->check_reductions(call, plan.grad_dtypes);
}

}  // namespace

std::shared_ptr<Sharded> Sharded::create(Comm& comm, std::span<const Tensor> params,
                                         const ShardedOptions& options) {
  verify_params(comm, params);
  const bool needs_data = options.sync == 1 && comm.rank() == 0;
  const auto problem = first_problem(comm, params, needs_data);
  const bool on_device = !params.empty() && params[0].device >= 0;
  verify_settings(comm, settings(options, on_device, problem));
  // Parameters and settings are equal on all ranks from here on, so all ranks throw the same errors.
  if (problem) fail(problem->code, "%s", problem->text.c_str());
  check_options(options, params, comm.size());
  ShardedPlan plan = make_plan(params, options, comm.size());
  check_live_bytes(plan, options, on_device);
  if (on_device) check_device(comm, plan, options);
  return std::make_shared<Sharded>(comm, params, std::move(plan), options);
}

}  // namespace dsc
