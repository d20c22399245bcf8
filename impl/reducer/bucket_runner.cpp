#include "reducer/bucket_runner.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/wait_ignoring_failure.hpp"

namespace dsc {
namespace {

thread_local const BucketRunner* inside_hook_of = nullptr;

// While an object of this class exists, its thread counts as being inside a hook.
class HookScope {
 public:
  explicit HookScope(const BucketRunner& runner) noexcept : before_(inside_hook_of) {
    inside_hook_of = &runner;
  }
  ~HookScope() { inside_hook_of = before_; }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  const BucketRunner* const before_;
};

// Returns the last bucket that hooks see. Buckets of sparse gradients have no elements, and hooks do not see
// them.
size_t last_with_elements(const BucketSet& set) {
  size_t last = 0;
  for (size_t b = 0; b < set.size(); ++b)
    if (set.layout.buckets[b].count > 0) last = b;
  return last;
}

}  // namespace

void BucketHook::load(std::span<const std::byte> state, std::span<const HookBucket>) {
  if (!state.empty())
    fail(DSC_ERR_INVALID_ARG, "hook %s keeps no state, expected 0 bytes, got %zu", name().c_str(),
         state.size());
}

BucketRunner::BucketRunner(Comm& group, const ParamList& params)
    : timeline(std::make_shared<Timeline>(group.id(), params.labels)), group_(group), params_(params) {
  group.trace_iterations(timeline);
}

void BucketRunner::set_hook(std::shared_ptr<BucketHook> hook) {
  if (hook) hook->prepare(params_.tensors);
  hook_ = std::move(hook);
  hook_set_ = nullptr;
}

void BucketRunner::expect_capturable(const Space& space, void* stream) const {
  if (!hook_ || !hook_->needs_host() || !space.is_captured(stream)) return;
  fail(DSC_ERR_STATE,
       "the stream is being captured in a graph, expected another stream: hook %s computes on the host",
       hook_->name().c_str());
}

void BucketRunner::begin(BucketSet& set, int divisor) {
  const MutexLock lock(mutex_);
  if (hook_ && hook_set_ && hook_set_ != &set) hook_->prepare(params_.tensors);
  hook_set_ = &set;
  if (set_ != &set) {
    set_ = &set;
    buckets_ = std::vector<Bucket>(set.size());
    std::vector<size_t> bytes;
    for (size_t b = 0; b < set.size(); ++b) bytes.push_back(set.bucket_bytes(b));
    timeline->set_buckets(set.layout.param_buckets, std::move(bytes));
  }
  divisor_ = divisor;
  set.set_divisor(hook_ ? 1 : divisor);
  launched_ = 0;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    bucket.pending.store(set.layout.plan.bucket(b).size(), std::memory_order_relaxed);
    bucket.work.reset();
    bucket.next_step = 0;
    bucket.reduced = false;
  }
  timeline->begin();
}

// Uses acq_rel, so that the thread that completes a bucket sees what other threads have written to it.
bool BucketRunner::count_ready(size_t bucket) noexcept {
  return buckets_[bucket].pending.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

bool BucketRunner::is_next_complete() const noexcept {
  return launched_ < buckets_.size() && buckets_[launched_].pending.load(std::memory_order_acquire) == 0;
}

// With a hook, each start also advances all earlier buckets by one step. Steps must not depend on time,
// because time differs between ranks.
void BucketRunner::start_next() {
  const size_t number = launched_;
  timeline->launched(number);
  if (!hook_) {
    buckets_[number].work = set_->storage->start(number, set_->calls[number]);
  } else {
    set_->storage->gather(number);
    for (size_t b = 0; b < number; ++b) advance(b);
    buckets_[number].reduced = set_->layout.buckets[number].count == 0;
    if (!buckets_[number].reduced) step(number);
  }
  ++launched_;
}

void BucketRunner::refuse_inside_hook() const {
  if (inside_hook_of == this)
    fail(DSC_ERR_REENTRANT,
         "a hook of this reducer calls it, expected calls on the bucket's communicator only");
}

void BucketRunner::load_hook(BucketSet& set, std::span<const std::byte> state) {
  std::vector<HookBucket> views;
  for (size_t b = 0; b < set.size(); ++b) views.push_back(view_of(set, b));
  hook_->load(state, views);
  hook_set_ = &set;
}

HookBucket BucketRunner::view_of(const BucketSet& set, size_t b) const {
  const BucketLayout::Bucket& bucket = set.layout.buckets[b];
  return {.index = b,
          .is_last = b == last_with_elements(set),
          .divisor = divisor_,
          .dtype = bucket.dtype,
          .count = bucket.count,
          .buffer = set.bucket(b),
          .stream = set.storage->stream(),
          .params = set.layout.plan.bucket(b),
          .tensors = params_.tensors,
          .slots = set.slots,
          .group = group_,
          .space = set.storage->space()};
}

// Runs the next step of the hook. A hook that fails may have changed the buffer and started operations, so
// the reducer is revoked on all ranks.
void BucketRunner::step(size_t b) {
  Bucket& bucket = buckets_[b];
  const HookScope scope(*this);
  capture([&] { bucket.work = hook_->step(view_of(*set_, b), bucket.next_step++); },
          [&](const Error& error) {
            Failure cause = error.failure();
            cause.ranks = {group_.rank()};
            cause.text = "hook " + hook_->name() + " failed on rank " + std::to_string(group_.rank()) + ": " +
                         error.what();
            group_.revoke(cause);
            throw Error(error);
          });
  bucket.reduced = !bucket.work;
  if (bucket.reduced) timeline->reduced(b, tick_now());
}

void BucketRunner::advance(size_t b) {
  Bucket& bucket = buckets_[b];
  if (bucket.reduced) return;
  if (group_.revoked()) throw Error(group_.failure());
  // Order the next step after this work. On a device, the stream waits; in host memory, this thread waits.
  if (void* stream = set_->storage->stream()) bucket.work->wait_on(stream, Deadline::never());
  const Failure failure = set_->storage->outcome(*bucket.work);
  if (failure.code != DSC_OK) throw Error(failure);
  step(b);
}

void BucketRunner::complete_hooks() {
  if (!hook_) return;
  const MutexLock lock(mutex_);
  const FlagScope scope(starting_);
  for (bool is_over = false; !is_over;) {
    is_over = true;
    for (size_t b = 0; b < buckets_.size(); ++b) {
      advance(b);
      is_over = is_over && buckets_[b].reduced;
    }
  }
}

size_t BucketRunner::launched() {
  const MutexLock lock(mutex_);
  return launched_;
}

std::shared_ptr<Work> BucketRunner::work_of(size_t bucket) {
  const MutexLock lock(mutex_);
  return buckets_[bucket].work;
}

Failure BucketRunner::await(size_t bucket) {
  const auto work = work_of(bucket);
  if (!work) return {};
  const Failure failure = set_->storage->outcome(*work);
  if (failure.code == DSC_OK) timeline->reduced(bucket, work->end_ticks());
  return failure;
}

Failure BucketRunner::await_end(size_t bucket) {
  const auto work = work_of(bucket);
  if (!work) return {};
  wait_ignoring_failure(*work, Deadline::never());
  return work->failure();
}

void BucketRunner::end() {
  const MutexLock lock(mutex_);
  for (Bucket& bucket : buckets_) bucket.work.reset();
  launched_ = 0;
}

bool BucketRunner::is_running() {
  const MutexLock lock(mutex_);
  for (const Bucket& bucket : buckets_)
    if (bucket.work && !bucket.work->done()) return true;
  return false;
}

bool BucketRunner::wait_idle(Deadline deadline) noexcept {
  bool idle = true;
  for (Bucket& bucket : buckets_)
    idle = (!bucket.work || wait_ignoring_failure(*bucket.work, deadline)) && idle;
  return idle;
}

}  // namespace dsc
