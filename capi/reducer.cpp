#include "dsc/reducer.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "clip_options.hpp"
#include "comm_call.hpp"
#include "give.hpp"
#include "op_stats.hpp"
#include "pipeline_run/running_pass.hpp"
#include "reducer_handle.hpp"
#include "tensors.hpp"

namespace {

dsc_bucket_reducer_options_t default_reducer_options() {
  const dsc::ReducerOptions defaults;
  dsc_bucket_reducer_options_t options{};
  options.struct_size = sizeof options;
  options.bucket_bytes = defaults.bucket_bytes;
  options.first_bucket_bytes = defaults.first_bucket_bytes;
  options.average = defaults.average;
  options.sync = defaults.sync;
  options.single_first_bucket = defaults.single_first_bucket;
  options.rebuild = defaults.rebuild;
  return options;
}

dsc::ReducerOptions read_options(const dsc_bucket_reducer_options_t* given) {
  const auto options = dsc::read_sized(given, default_reducer_options(), "options");
  dsc::ReducerOptions result;
  result.bucket_bytes = options.bucket_bytes;
  result.first_bucket_bytes = options.first_bucket_bytes;
  result.average = options.average;
  result.sync = options.sync;
  result.single_first_bucket = options.single_first_bucket;
  result.find_unused = options.find_unused;
  result.static_graph = options.static_graph;
  result.rebuild = options.rebuild;
  result.small_bucket_first = options.small_bucket_first;
  result.grad_dtype = options.grad_dtype;
  result.keep_sparse_rows = options.keep_sparse_rows;
  if (options.reserved != 0)
    dsc::fail(DSC_ERR_INVALID_ARG, "options->reserved is %d, expected 0", options.reserved);
  if (options.n_buckets == 0) {
    if (options.bucket_indices || options.bucket_starts)
      dsc::fail(DSC_ERR_INVALID_ARG,
                "options->n_buckets is 0, expected the number of buckets in options->bucket_indices");
    return result;
  }
  result.bucket_indices = &dsc::require(options.bucket_indices, "options->bucket_indices");
  result.bucket_starts = {&dsc::require(options.bucket_starts, "options->bucket_starts"),
                          options.n_buckets + 1};
  return result;
}

}  // namespace

dsc_result_t dsc_bucket_reducer_options_init(dsc_bucket_reducer_options_t* options, size_t struct_size) {
  return dsc::guard_pure(
      __func__, [&] { dsc::init_sized(options, struct_size, default_reducer_options(), "options"); });
}

dsc_result_t dsc_bucket_reducer_create(dsc_comm_t* comm, const dsc_tensor_t* params, size_t n_params,
                                       const dsc_bucket_reducer_options_t* options,
                                       dsc_bucket_reducer_t** reducer) {
  return dsc::guard(__func__, [&] {
    if (reducer) *reducer = nullptr;
    dsc::CommCall inside(comm);
    dsc::require(reducer, "reducer");
    const auto tensors = dsc::read_tensors(params, n_params, "params");
    auto made = dsc::Reducer::create(*inside, tensors, read_options(options));
    *reducer = dsc::open_handle<dsc_bucket_reducer_t>(dsc::HandleKind::kBucketReducer, std::move(made));
  });
}

dsc_result_t dsc_bucket_reducer_set_sync(dsc_bucket_reducer_t* reducer, int32_t sync) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    if (sync != 0 && sync != 1) dsc::fail(DSC_ERR_INVALID_ARG, "sync is %d, expected 0 or 1", sync);
    pinned->set_sync(sync == 1);
  });
}

dsc_result_t dsc_bucket_reducer_unused(const dsc_bucket_reducer_t* reducer, size_t* indices, size_t capacity,
                                       size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    dsc::check_room(indices, "indices", capacity, needed);
    const std::vector<size_t> unused = pinned->unused();
    *needed = unused.size();
    std::copy_n(unused.begin(), std::min(unused.size(), capacity), indices);
    return dsc::how_given(unused.size(), capacity);
  });
}

dsc_result_t dsc_bucket_reducer_rebuilds(const dsc_bucket_reducer_t* reducer, uint64_t* count) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    dsc::require(count, "count") = pinned->rebuilds();
  });
}

dsc_result_t dsc_bucket_reducer_begin(dsc_bucket_reducer_t* reducer, void* stream) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    pinned->begin(stream);
  });
}

dsc_result_t dsc_bucket_reducer_accumulate(dsc_bucket_reducer_t* reducer, size_t index, const void* gradient,
                                           void* stream) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    pinned->accumulate(index, gradient, stream);
  });
}

dsc_result_t dsc_bucket_reducer_mark_ready(dsc_bucket_reducer_t* reducer, size_t index, void* gradient,
                                           void* stream) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    pinned->mark_ready(index, gradient, stream);
  });
}

dsc_result_t dsc_bucket_reducer_mark_unused(dsc_bucket_reducer_t* reducer, size_t index) {
  return dsc::guard(__func__, [&] { dsc::pin_reducer(reducer)->mark_unused(index); });
}

dsc_result_t dsc_bucket_reducer_mark_sparse(dsc_bucket_reducer_t* reducer, size_t index,
                                            const int64_t* indices, const void* values, size_t n_rows) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    if (n_rows > 0) dsc::require(indices, "indices");
    dsc::check_buffer("values", values, n_rows);
    pinned->mark_sparse(index, {indices, n_rows}, values);
  });
}

dsc_result_t dsc_bucket_reducer_sparse(const dsc_bucket_reducer_t* reducer, size_t index,
                                       const int64_t** indices, const void** values, size_t* n_rows) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    dsc::require(indices, "indices");
    dsc::require(values, "values");
    dsc::require(n_rows, "n_rows");
    const dsc::SparseRows& rows = pinned->sparse_rows(index);
    *indices = rows.indices.data();
    *values = rows.values.data();
    *n_rows = rows.indices.size();
  });
}

dsc_result_t dsc_bucket_reducer_grad_view(dsc_bucket_reducer_t* reducer, size_t index, void** view) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    dsc::require(view, "view");
    *view = pinned->grad_view(index);
  });
}

dsc_result_t dsc_bucket_reducer_read_grad(const dsc_bucket_reducer_t* reducer, size_t index, void* gradient) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    pinned->read_gradient(index, gradient);
  });
}

dsc_result_t dsc_bucket_reducer_finish(dsc_bucket_reducer_t* reducer, void* stream) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    pinned->refuse_inside_hook();
    if (pinned->reduces()) dsc::refuse_reduction_in_pass("finish");
    pinned->finish(stream);
  });
}

dsc_result_t dsc_bucket_reducer_synchronize(dsc_bucket_reducer_t* reducer, int32_t timeout_ms) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    if (timeout_ms < -1)
      dsc::fail(DSC_ERR_INVALID_ARG,
                "timeout_ms is %d, expected 0 or more, or -1 for the timeout of the communicator",
                timeout_ms);
    const int patience_ms = timeout_ms < 0 ? pinned->group()->timeout_ms() : timeout_ms;
    return pinned->synchronize(dsc::Deadline::after_ms(patience_ms)) ? DSC_OK : DSC_IN_PROGRESS;
  });
}

dsc_result_t dsc_bucket_reducer_buckets(const dsc_bucket_reducer_t* reducer, size_t* indices, size_t* starts,
                                        size_t* n_buckets) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    dsc::require(indices, "indices");
    dsc::require(starts, "starts");
    dsc::require(n_buckets, "n_buckets");
    const dsc::BucketPlan plan = pinned->plan();
    std::ranges::copy(plan.indices, indices);
    std::ranges::copy(plan.starts, starts);
    *n_buckets = plan.buckets();
  });
}

dsc_result_t dsc_bucket_reducer_stats_json(const dsc_bucket_reducer_t* reducer, char* text, size_t capacity,
                                           size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    return dsc::give_text(pinned->report_json(), text, capacity, needed);
  });
}

dsc_result_t dsc_bucket_reducer_draw(const dsc_bucket_reducer_t* reducer, char* text, size_t capacity,
                                     size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    return dsc::give_text(pinned->picture(), text, capacity, needed);
  });
}

dsc_result_t dsc_bucket_reducer_stats(const dsc_bucket_reducer_t* reducer, dsc_op_stats_t* stats,
                                      size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    return dsc::write_op_stats(pinned->group()->stats(), stats, capacity, needed);
  });
}

dsc_result_t dsc_bucket_reducer_set_buffers(dsc_bucket_reducer_t* reducer, const dsc_tensor_t* buffers,
                                            size_t n_buffers) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    pinned->expect_idle();
    pinned->expect_no_join();
    pinned->buffers.set(*pinned->group(), dsc::read_tensors(buffers, n_buffers, "buffers"));
  });
}

dsc_result_t dsc_bucket_reducer_sync_buffers(dsc_bucket_reducer_t* reducer, dsc_buffer_sync_t how) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    if (how != DSC_BUFFER_SYNC_BROADCAST && how != DSC_BUFFER_SYNC_MEAN)
      dsc::fail(DSC_ERR_INVALID_ARG, "how is %d, expected 1 (broadcast) or 2 (mean)", how);
    dsc::sync_buffers(*pinned, how);
  });
}

dsc_result_t dsc_bucket_reducer_clip(dsc_bucket_reducer_t* reducer, const dsc_clip_options_t* options,
                                     double* norm) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_reducer(reducer);
    dsc::require(norm, "norm");
    const auto wanted = dsc::read_clip_options(options);
    std::optional<dsc::CommCall> shards;
    if (wanted.shards) shards.emplace(wanted.shards);
    dsc::ClipRequest request{{wanted.max_norm, wanted.scale}, wanted.norm, shards ? &**shards : nullptr, {}};
    if (wanted.counted) request.counted = {wanted.counted, pinned->size()};
    *norm = pinned->clip(request);
  });
}

dsc_result_t dsc_bucket_reducer_close(dsc_bucket_reducer_t* reducer) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_any_reducer(reducer);
    pinned->refuse_inside_hook();
    pinned->close();
  });
}

dsc_result_t dsc_bucket_reducer_destroy(dsc_bucket_reducer_t* reducer) {
  return dsc::guard(__func__, [&] {
    if (!reducer) return;
    auto pinned = dsc::pin_any_reducer(reducer);
    pinned->refuse_inside_hook();
    pinned.close();
    pinned->close();
  });
}
