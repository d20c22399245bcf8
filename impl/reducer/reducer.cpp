#include "reducer/reducer.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "dtype/dtype.hpp"
#include "reducer/broadcast.hpp"
#include "reducer/verify.hpp"

namespace dsc {
namespace {

constexpr int kWaitIdleMs = 2000;
constexpr size_t kKernelAlignment = 16;  // in bytes; kernels are fast at such addresses

std::string listed(std::span<const size_t> indices) {
  std::string text;
  for (const size_t index : indices) text += (text.empty() ? "" : " ") + std::to_string(index);
  return text;
}

bool on_device(std::span<const Tensor> params) { return !params.empty() && params[0].device >= 0; }

// Returns the settings that must be equal on all ranks, in the order in which differences are reported.
std::vector<Setting> settings(const ReducerOptions& options, std::span<const Tensor> params,
                              const std::optional<TensorProblem>& problem) {
  const size_t buckets = options.bucket_starts.empty() ? 0 : options.bucket_starts.size() - 1;
  std::vector<Setting> list{{"bucket_bytes", std::to_string(options.bucket_bytes)},
                            {"first_bucket_bytes", std::to_string(options.first_bucket_bytes)},
                            {"average", std::to_string(options.average)},
                            {"sync", std::to_string(options.sync)},
                            {"single_first_bucket", std::to_string(options.single_first_bucket)},
                            {"the parameters' memory", on_device(params) ? "of a device" : "of the host"},
                            {"the first unusable parameter", problem ? problem->text : "none"},
                            {"n_buckets", std::to_string(buckets)}};
  for (size_t b = 0; b < buckets; ++b) {
    const size_t start = options.bucket_starts[b];
    list.push_back({"bucket " + std::to_string(b),
                    listed({options.bucket_indices + start, options.bucket_starts[b + 1] - start})});
  }
  return list;
}

int32_t reduce_op(int32_t average) { return average == DSC_AVERAGE_POST ? DSC_OP_AVG : DSC_OP_SUM; }

void check_flag(int32_t value, const char* name) {
  if (value != 0 && value != 1) fail(DSC_ERR_INVALID_ARG, "%s is %d, expected 0 or 1", name, value);
}

void check_options(const ReducerOptions& options, std::span<const Tensor> params) {
  if (params.empty()) fail(DSC_ERR_INVALID_ARG, "n_params is 0, expected 1 or more");
  if (options.average < DSC_AVERAGE_PRE || options.average > DSC_AVERAGE_PYTORCH)
    fail(DSC_ERR_INVALID_ARG, "average is %d, expected 1 (pre), 2 (post), 3 (none) or 4 (pytorch)",
         options.average);
  check_flag(options.sync, "sync");
  check_flag(options.single_first_bucket, "single_first_bucket");
  for (size_t i = 0; i < params.size(); ++i) {
    const int32_t dtype = params[i].dtype;
    // Averaging must exist for the type even if the ranks only sum, because the reducer multiplies or
    // divides.
    const int32_t op = options.average == DSC_AVERAGE_NONE ? DSC_OP_SUM : DSC_OP_AVG;
    if (const char* reason = op_unsupported_reason(op, dtype))
      fail(DSC_ERR_UNSUPPORTED, "%s: %s %s: %s", label(params[i].name, i).c_str(), op_name(op),
           dtype_name(dtype), reason);
  }
}

BucketLayoutOptions layout_options(const ReducerOptions& options, bool device) {
  BucketLayoutOptions result;
  if (device) result.part_alignment = kKernelAlignment;
  result.bucket_bytes = options.bucket_bytes;
  result.first_bucket_bytes = options.first_bucket_bytes;
  result.single_first_bucket = options.single_first_bucket == 1;
  result.starts = options.bucket_starts;
  if (!options.bucket_starts.empty()) result.indices = {options.bucket_indices, options.bucket_starts.back()};
  return result;
}

std::vector<std::string> labels(std::span<const Tensor> params) {
  std::vector<std::string> result;
  for (size_t i = 0; i < params.size(); ++i) result.push_back(label(params[i].name, i));
  return result;
}

}  // namespace

std::shared_ptr<Reducer> Reducer::create(Comm& comm, std::span<const Tensor> params,
                                         const ReducerOptions& options) {
  check_starts(options.bucket_starts);
  verify_params(comm, params);
  const auto problem = first_problem(comm, params, options.sync != 0);
  verify_settings(comm, settings(options, params, problem));
  // From here on parameters and settings are equal on all ranks, so all ranks find the same errors.
  if (problem) fail(problem->code, "%s", problem->text.c_str());
  check_options(options, params);
  const bool device = on_device(params);
  BucketLayout layout = make_bucket_layout(params, layout_options(options, device));
  const auto group = comm.split(0, comm.rank(), {"reducer", 0});
  group->share_nonfinite(comm);
  auto storage = (device ? make_device_storage : make_host_storage)(
      *group, {options.average, layout.buckets, layout.bytes});
  auto reducer =
      std::make_shared<Reducer>(group, params, std::move(layout), options.average, std::move(storage));
  if (options.sync == 1) broadcast_coalesced(*group, params, 0, 0);
  return reducer;
}

Reducer::Reducer(std::shared_ptr<Comm> group, std::span<const Tensor> params, BucketLayout layout,
                 int32_t average, std::unique_ptr<GradientStorage> storage)
    : group_(std::move(group)),
      layout_(std::move(layout)),
      average_(average),
      labels_(labels(params)),
      storage_(std::move(storage)),
      ranges_(params.size()),
      params_(params.size()),
      buckets_(layout_.buckets.size()) {
  prepare_params(params);
  prepare_buckets();
}

Reducer::~Reducer() {
  close();
  bool settled = true;
  const Deadline deadline = Deadline::after_ms(kWaitIdleMs);
  for (Bucket& bucket : buckets_)
    settled = (!bucket.work || wait_ignoring_failure(*bucket.work, deadline)) && settled;
  if (settled && storage_->wait_idle(deadline)) return;
  // The engine may still write to the buckets; a leak is the lesser evil.
  log(DSC_LOG_WARN, "%s: %zu bytes of gradient buckets are kept: reductions did not end within %d ms",
      group_->name().c_str(), layout_.bytes, kWaitIdleMs);
  storage_->keep();
}

void Reducer::prepare_params(std::span<const Tensor> params) {
  for (size_t i = 0; i < params.size(); ++i) {
    params_[i].slot = {storage_->arena() + layout_.param_offsets[i], params[i].count, params[i].bytes(),
                       layout_.param_buckets[i], params[i].dtype};
  }
}

void Reducer::prepare_buckets() {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].params = layout_.plan.bucket(b).size();
    Call& call = buckets_[b].call;
    call.kind = OpKind::kAllReduce;
    call.dtype = layout_.buckets[b].dtype;
    call.op = reduce_op(average_);
    call.recv = storage_->arena() + layout_.buckets[b].offset;
    call.send = call.recv;
    call.count = layout_.buckets[b].count;
    if (average_ == DSC_AVERAGE_PRE) call.prescale = 1.0 / group_->size();
    std::snprintf(call.note, sizeof call.note, "bucket %zu", b);
  }
}

void Reducer::begin(void* stream) {
  check_alive();
  storage_->check(nullptr, stream, {});
  const MutexLock lock(mutex_);
  if (phase_ == Phase::kFinishing) fail(DSC_ERR_STATE, "finish is running in another thread");
  if (phase_ == Phase::kOpen) {
    const auto indices = missing();
    fail(DSC_ERR_STATE,
         "expected to have finished reduction in the prior iteration before starting a new one; %s",
         indices.empty() ? "all parameters are ready, call finish"
                         : ("parameters that did not receive a gradient on rank " +
                            std::to_string(group_->rank()) + ": " + name_list(indices))
                               .c_str());
  }
  storage_->begin(stream);
  for (Param& param : params_) {
    param.mark = Mark::kNone;
    param.accumulated = false;
    param.result = nullptr;
  }
  for (Bucket& bucket : buckets_) bucket.pending.store(bucket.params, std::memory_order_relaxed);
  ranges_.next_iteration();
  phase_ = Phase::kOpen;
}

// The failure is checked after the wait: a communicator that fails unblocks its streams, and is known to
// have failed before that.
bool Reducer::synchronize(Deadline deadline) {
  const bool over = storage_->wait_idle(deadline);
  check_alive();
  return over;
}

void* Reducer::grad_view(size_t index) const {
  check_index(index);
  return params_[index].slot.view;
}

void Reducer::close() noexcept {
  const Phase phase = [&] {
    const MutexLock lock(mutex_);
    return phase_;
  }();
  const bool finishing = phase == Phase::kFinishing;
  // On a device, finished iterations may still be running.
  if (phase == Phase::kIdle)
    storage_->wait_idle(Deadline::after_ms(group_->revoked() ? kWaitIdleMs : group_->timeout_ms()));
  // A thread inside start() may be waiting for other ranks while it holds launch_mutex_.
  if (launching_.load()) group_->abort();
  const MutexLock lock(launch_mutex_);
  if (std::exchange(closed_, true)) return;
  if (group_->revoked() && storage_->goes_on_alone() && !reported_.exchange(true))
    log(DSC_LOG_WARN, "%s: closed without anybody having asked for its failure: %s", group_->name().c_str(),
        group_->failure().text.c_str());
  bool running = finishing;
  for (const Bucket& bucket : buckets_) running = running || (bucket.work && !bucket.work->done());
  if (running) {
    group_->abort();
  } else {
    group_->leave();
  }
}

// Throws if the group has failed. The first call that finds a failure of the whole group reports its cause.
void Reducer::check_alive() const {
  if (!group_->revoked()) return;
  const Failure failure = group_->failure();
  const bool is_shared = storage_->goes_on_alone() || is_group_fatal(failure.code);
  if (is_shared && !reported_.exchange(true)) throw Error(failure);
  fail(DSC_ERR_REVOKED, "the reducer was revoked: %s", failure.text.c_str());
}

void Reducer::check_index(size_t index) const {
  if (index >= params_.size())
    fail(DSC_ERR_INVALID_ARG, "out of range parameter index %zu, expected 0 to %zu", index,
         params_.size() - 1);
}

}  // namespace dsc
