#include "sharded/sharded.hpp"

#include <utility>

#include "base/error.hpp"

namespace dsc {
namespace {

constexpr int kLastGatherMs = 2000;

std::vector<int32_t> bucket_dtypes(const ShardLayout& layout) {
  std::vector<int32_t> dtypes;
  for (const ShardBucket& bucket : layout.buckets) dtypes.push_back(bucket.dtype);
  return dtypes;
}

}  // namespace

Sharded::Sharded(Comm& comm, std::span<const Tensor> params, ShardedPlan plan, const ShardedOptions& options)
    : plan_(std::move(plan)), groups_(comm, static_cast<int>(plan_.layout.shards)) {
  const bool on_device = params[0].device >= 0;
  const GradientOptions gradients{options.average, options.grad_dtype, on_device, options.stage == 1,
                                  options.max_live_bytes};
  const ParameterOptions parameters{on_device, options.stage < 3, options.max_live_bytes, options.prefetch};
  gradients_ = std::make_unique<GradientShards>(groups_, plan_.layout, params, plan_.grad_dtypes, gradients);
  params_ = std::make_unique<ParameterShards>(groups_, plan_.layout, params, bucket_dtypes(plan_.layout),
                                              parameters);
  set_initial_values(params, options.sync == 1);
}

Sharded::~Sharded() { close(); }

void Sharded::begin(bool adds, void* stream) {
  groups_.check_alive();
  if (!adds && needs_step_ && !gradients_->is_open())
    fail(DSC_ERR_STATE,
         "the gradients of the previous iteration were not used yet, expected dsc_sharded_step_done() first, "
         "or accumulate 1 to add to these gradients");
  gradients_->begin(adds, params_->step_tag(), stream);
  needs_step_ = false;
}

void Sharded::finish(void* stream) {
  gradients_->finish(stream);
  needs_step_ = true;
  params_->wait_for_gathers(stream);  // the optimizer may now write to the shards, which gathers read
}

void Sharded::step_done(bool changed, void* stream) {
  groups_.check_alive();
  if (gradients_->is_open()) fail(DSC_ERR_STATE, "an iteration is open; call dsc_sharded_finish() first");
  params_->step(changed, stream);
  // The optimizer reads the shards on this stream. Later writes to the shards are ordered after that.
  gradients_->memory().follow(stream);
  needs_step_ = false;
}

void Sharded::unshard(size_t unit) { params_->unshard(unit); }
void Sharded::wait(size_t unit, void* stream) { params_->wait(unit, stream); }
void Sharded::reshard(size_t unit, void* stream) { params_->reshard(unit, stream); }

void Sharded::accumulate(size_t index, const void* gradient, int32_t dtype, void* stream) {
  gradients_->accumulate(index, gradient, dtype, stream);
}

void Sharded::mark_ready(size_t index, const void* gradient, int32_t dtype, void* stream) {
  gradients_->mark_ready(index, gradient, dtype, stream);
}

void Sharded::mark_unused(size_t index) { gradients_->mark_unused(index); }

void* Sharded::param_view(size_t index) const {
  check_index(index);
  return params_->view(index);
}

void* Sharded::grad_view(size_t index) const {
  check_index(index);
  return gradients_->view(index);
}

void Sharded::check_index(size_t index) const {
  if (index >= plan_.tensors.size())
    fail(DSC_ERR_INVALID_ARG, "index is %zu, expected 0 to %zu, the index of a parameter", index,
         plan_.tensors.size() - 1);
}

// A thread that waits for other ranks may hold locks, so it is interrupted before this function takes locks.
// Gathers that were started ahead, and reductions on a device, may still be running. They get time to end,
// because a rank that closes first must not fail operations of other ranks.
void Sharded::close() noexcept {
  if (closed_.exchange(true)) return;
  const bool is_running = in_call.load() || gradients_->is_running();
  const Deadline deadline = Deadline::after_ms(groups_.revoked() ? 0 : kLastGatherMs);
  if (is_running || !params_->wait_idle(deadline) || !gradients_->wait_idle(deadline)) {
    groups_.abort();
  } else {
    groups_.leave();
  }
}

}  // namespace dsc
