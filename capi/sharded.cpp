#include "dsc/sharded.h"

#include <vector>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "clip_options.hpp"
#include "comm_call.hpp"
#include "give.hpp"
#include "op_stats.hpp"
#include "open_call.hpp"
#include "pipeline_run/running_pass.hpp"
#include "shard_plan.hpp"
#include "sharded/sharded.hpp"
#include "tensors.hpp"

namespace dsc {

static void expect_open(const Sharded& sharded) {
  if (sharded.is_closed()) fail(DSC_ERR_STATE, "the sharded parameters are closed");
}

}  // namespace dsc

namespace {

// Pins sharded parameters even if they are closed, for the few calls that allow this.
dsc::Pinned<dsc::Sharded> pin_any_sharded(const void* handle) {
  return dsc::Pinned<dsc::Sharded>(dsc::HandleKind::kSharded, handle);
}

using ShardedCall = dsc::Open<dsc::ExclusiveCall<dsc::Sharded, dsc::HandleKind::kSharded>>;

dsc::Open<dsc::Pinned<dsc::Sharded>> pin_sharded(const void* handle) {
  return dsc::Open<dsc::Pinned<dsc::Sharded>>(dsc::HandleKind::kSharded, handle);
}

dsc_sharded_options_t default_sharded_options() {
  const dsc::ShardedOptions defaults;
  dsc_sharded_options_t options{};
  options.struct_size = sizeof options;
  options.stage = defaults.stage;
  options.average = defaults.average;
  options.prefetch = defaults.prefetch;
  options.sync = defaults.sync;
  return options;
}

dsc::ShardedOptions read_options(const dsc_sharded_options_t* given, size_t n_params) {
  const auto options = dsc::read_sized(given, default_sharded_options(), "options");
  const dsc::ReadShardPlan plan = dsc::read_shard_plan(options.plan, n_params);
  dsc::ShardedOptions result;
  result.rules = plan.rules;
  result.alone = plan.alone;
  result.max_live_bytes = options.max_live_bytes;
  result.stage = options.stage;
  result.average = options.average;
  result.grad_dtype = options.grad_dtype;
  result.shard_size = options.shard_size;
  result.prefetch = options.prefetch;
  result.sync = options.sync;
  return result;
}

dsc_sharded_shard_t describe_shard(const dsc::Sharded& sharded, size_t bucket) {
  const dsc::Elements grads = sharded.grad_shard(bucket);
  dsc_sharded_shard_t shard{};
  shard.params = sharded.param_shard(bucket);
  shard.grads = grads.data;
  shard.unit = sharded.layout().buckets[bucket].unit;
  shard.bucket = bucket;
  shard.start = sharded.shard() * grads.count;
  shard.count = grads.count;
  shard.dtype = sharded.layout().buckets[bucket].dtype;
  shard.grad_dtype = grads.dtype;
  return shard;
}

dsc_sharded_range_t convert_range(const dsc::ShardRange& from) {
  dsc_sharded_range_t to{};
  to.param = from.param;
  to.param_start = from.param_start;
  to.bucket = from.bucket;
  to.shard_start = from.shard_start;
  to.count = from.count;
  return to;
}

}  // namespace

dsc_result_t dsc_sharded_options_init(dsc_sharded_options_t* options, size_t struct_size) {
  return dsc::guard_pure(
      __func__, [&] { dsc::init_sized(options, struct_size, default_sharded_options(), "options"); });
}

dsc_result_t dsc_sharded_create(dsc_comm_t* comm, const dsc_tensor_t* params, size_t n_params,
                                const dsc_sharded_options_t* options, dsc_sharded_t** sharded) {
  return dsc::guard(__func__, [&] {
    if (sharded) *sharded = nullptr;
    dsc::CommCall inside(comm);
    dsc::require(sharded, "sharded");
    const auto tensors = dsc::read_tensors(params, n_params, "params");
    auto made = dsc::Sharded::create(*inside, tensors, read_options(options, n_params));
    *sharded = dsc::open_handle<dsc_sharded_t>(dsc::HandleKind::kSharded, std::move(made));
  });
}

dsc_result_t dsc_sharded_begin(dsc_sharded_t* sharded, int32_t accumulate, void* stream) {
  return dsc::guard(__func__, [&] {
    ShardedCall inside(sharded);
    const bool adds = dsc::read_flag("accumulate", accumulate);
    inside->begin(adds, stream);
  });
}

dsc_result_t dsc_sharded_accumulate(dsc_sharded_t* sharded, size_t index, const void* gradient,
                                    dsc_dtype_t dtype, void* stream) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_sharded(sharded);
    pinned->accumulate(index, gradient, dtype, stream);
  });
}

dsc_result_t dsc_sharded_mark_ready(dsc_sharded_t* sharded, size_t index, const void* gradient,
                                    dsc_dtype_t dtype, void* stream) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_sharded(sharded);
    pinned->mark_ready(index, gradient, dtype, stream);
  });
}

dsc_result_t dsc_sharded_mark_unused(dsc_sharded_t* sharded, size_t index) {
  return dsc::guard(__func__, [&] { pin_sharded(sharded)->mark_unused(index); });
}

dsc_result_t dsc_sharded_finish(dsc_sharded_t* sharded, void* stream) {
  return dsc::guard(__func__, [&] {
    ShardedCall inside(sharded);
    dsc::refuse_reduction_in_pass("finish");
    inside->finish(stream);
  });
}

dsc_result_t dsc_sharded_clip(dsc_sharded_t* sharded, const dsc_clip_options_t* options, double* norm,
                              void* stream) {
  return dsc::guard(__func__, [&] {
    ShardedCall inside(sharded);
    dsc::require(norm, "norm");
    const auto wanted = dsc::read_clip_options(options);
    if (wanted.shards || wanted.counted)
      dsc::fail(DSC_ERR_UNSUPPORTED,
                "options->%s is not NULL, expected NULL: the norm is over all parameters of these ranks",
                wanted.shards ? "shards" : "counted");
    if (wanted.norm != DSC_NORM_TWO)
      dsc::fail(DSC_ERR_UNSUPPORTED, "norm is %d, expected 1 (two): shards support no other norm",
                wanted.norm);
    *norm = inside->clip(wanted.max_norm, wanted.scale, stream);
  });
}

dsc_result_t dsc_sharded_step_done(dsc_sharded_t* sharded, int32_t changed, void* stream) {
  return dsc::guard(__func__, [&] {
    ShardedCall inside(sharded);
    const bool has_changed = dsc::read_flag("changed", changed);
    inside->step_done(has_changed, stream);
  });
}

dsc_result_t dsc_sharded_unshard(dsc_sharded_t* sharded, size_t unit) {
  return dsc::guard(__func__, [&] {
    ShardedCall inside(sharded);
    inside->unshard(unit);
  });
}

dsc_result_t dsc_sharded_wait(dsc_sharded_t* sharded, size_t unit, void* stream) {
  return dsc::guard(__func__, [&] {
    ShardedCall inside(sharded);
    inside->wait(unit, stream);
  });
}

dsc_result_t dsc_sharded_reshard(dsc_sharded_t* sharded, size_t unit, void* stream) {
  return dsc::guard(__func__, [&] {
    ShardedCall inside(sharded);
    inside->reshard(unit, stream);
  });
}

dsc_result_t dsc_sharded_param_view(dsc_sharded_t* sharded, size_t index, void** view) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_sharded(sharded);
    dsc::require(view, "view");
    *view = pinned->param_view(index);
  });
}

dsc_result_t dsc_sharded_grad_view(dsc_sharded_t* sharded, size_t index, void** view) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_sharded(sharded);
    dsc::require(view, "view");
    *view = pinned->grad_view(index);
  });
}

dsc_result_t dsc_sharded_locations(const dsc_sharded_t* sharded, size_t* units, size_t* buckets,
                                   size_t* starts, size_t* n_units, size_t* shard, size_t* shards) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_sharded(sharded);
    dsc::require(units, "units");
    dsc::require(buckets, "buckets");
    dsc::require(starts, "starts");
    dsc::require(n_units, "n_units");
    dsc::require(shard, "shard");
    dsc::require(shards, "shards");
    const dsc::ShardLayout& layout = pinned->layout();
    for (size_t i = 0; i < layout.locations.size(); ++i) {
      units[i] = layout.buckets[layout.locations[i].bucket].unit;
      buckets[i] = layout.locations[i].bucket;
      starts[i] = layout.locations[i].start;
    }
    *n_units = layout.units.size();
    *shard = pinned->shard();
    *shards = layout.shards;
  });
}

dsc_result_t dsc_sharded_shards(dsc_sharded_t* sharded, dsc_sharded_shard_t* list, size_t capacity,
                                size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_sharded(sharded);
    std::vector<dsc_sharded_shard_t> shards;
    for (size_t b = 0; b < pinned->layout().buckets.size(); ++b) shards.push_back(describe_shard(*pinned, b));
    return dsc::give_structs("list", shards, list, capacity, needed, [](const auto& shard) { return shard; });
  });
}

dsc_result_t dsc_sharded_ranges(const dsc_sharded_t* sharded, dsc_sharded_range_t* list, size_t capacity,
                                size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_sharded(sharded);
    const auto ranges = dsc::shard_ranges(pinned->tensors(), pinned->layout(), pinned->shard());
    return dsc::give_structs("list", ranges, list, capacity, needed, convert_range);
  });
}

dsc_result_t dsc_sharded_memory_info(const dsc_sharded_t* sharded, dsc_sharded_memory_info_t* info) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_sharded(sharded);
    const dsc::HeldBytes params = pinned->held_params();
    const dsc::HeldBytes grads = pinned->held_gradients();
    dsc_sharded_memory_info_t held{};
    held.param_shard_bytes = params.shards;
    held.grad_shard_bytes = grads.shards;
    held.param_bytes = params.full;
    held.grad_bytes = grads.full;
    held.peak_param_bytes = params.peak_full;
    held.peak_grad_bytes = grads.peak_full;
    dsc::write_sized(info, held, "info");
  });
}

dsc_result_t dsc_sharded_stats(const dsc_sharded_t* sharded, dsc_op_stats_t* stats, size_t capacity,
                               size_t* needed) {
  return dsc::guard(
      __func__, [&] { return dsc::write_op_stats(pin_sharded(sharded)->stats(), stats, capacity, needed); });
}

dsc_result_t dsc_sharded_close(dsc_sharded_t* sharded) {
  return dsc::guard(__func__, [&] { pin_any_sharded(sharded)->close(); });
}

dsc_result_t dsc_sharded_destroy(dsc_sharded_t* sharded) {
  return dsc::guard(__func__, [&] {
    if (!sharded) return;
    auto pinned = pin_any_sharded(sharded);
    pinned.close();
    pinned->close();
  });
}
