// The end of an iteration of the reducer.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "dtype/dtype.hpp"
#include "reducer/reducer.hpp"

namespace dsc {
namespace {

constexpr timespec kPollPeriod{0, 100'000};

// Aborts the group unless done() was called, because after an error the contents of the buckets are unknown
// and no rank may use them.
class AbortUnlessDone {
 public:
  AbortUnlessDone(Comm& group, std::atomic<bool>& told) noexcept : group_(group), reported_(told) {}
  ~AbortUnlessDone() {
    if (done_) return;
    reported_.store(true);
    group_.abort();
  }
  AbortUnlessDone(const AbortUnlessDone&) = delete;
  AbortUnlessDone& operator=(const AbortUnlessDone&) = delete;

  void done() noexcept { done_ = true; }

 private:
  Comm& group_;
  std::atomic<bool>& reported_;
  bool done_ = false;
};

std::string reduced_text(size_t launched) {
  if (launched == 0) return "no bucket was reduced";
  if (launched == 1) return "the views of bucket 0 hold results";
  return "the views of buckets 0 to " + std::to_string(launched - 1) + " hold results";
}

}  // namespace

void Reducer::finish(void* stream) {
  current_set()->storage->check(nullptr, stream, {});
  stop_marking();
  runner_.timeline.finishing();
  if (is_local()) return finish_local(stream);
  AbortUnlessDone guard(*group_, reported_);
  take_deferred();
  mark_frozen_unused();
  mark_rest_unused();
  const std::vector<size_t> absent = [&] {
    const MutexLock lock(mutex_);
    return missing();
  }();
  if (!absent.empty()) {
    launch_unless_revoked();
    const size_t launched = runner_.launched();
    const Failure failure = end_incomplete(launched);
    if (failure.code == DSC_OK) {
      end_iteration();
      guard.done();
    }
    fail_incomplete(absent, launched, failure);
  }
  const Failure nonfinite = end_complete(stream);
  if (sparse_.any()) sparse_.reduce(*group_, divisor_);
  agree_after();
  end_iteration();
  guard.done();
  has_results(nonfinite.code == DSC_OK);
  if (nonfinite.code != DSC_OK) throw Error(nonfinite);
}

// Ends an iteration that only added to what this rank collects.
void Reducer::finish_local(void* stream) {
  take_deferred();
  storage().end(stream);
  const MutexLock lock(mutex_);
  carries_ = true;
  runner_.timeline.finished();
  phase_ = Phase::kIdle;
}

// Takes the gradients of an iteration in which marks were only counted, in the order of the parameters.
void Reducer::take_deferred() {
  std::vector<size_t> indices;
  std::vector<size_t> unmarked;
  {
    const MutexLock lock(mutex_);
    if (!is_deferred()) return;
    for (size_t i = 0; i < params_.size(); ++i) {
      (usage_.marks(i) > 0 ? indices : unmarked).push_back(i);
      states_[i].mark = Mark::kReady;
    }
  }
  for (const size_t i : indices) {
    collect(i, states_[i].gradient, states_[i].stream);
    become_ready(i, true);
  }
  for (const size_t i : unmarked) mark_without_gradient(i);
}

// With find_unused, parameters that were not marked have no gradient on this rank.
void Reducer::mark_rest_unused() {
  if (options_.find_unused == 0 || options_.static_graph == 1) return;
  const std::vector<size_t> rest = [&] {
    const MutexLock lock(mutex_);
    auto indices = missing();
    for (const size_t i : indices) states_[i].mark = Mark::kReady;
    return indices;
  }();
  for (const size_t i : rest) mark_without_gradient(i);
}

// Refuses further marks and waits for those that are running.
void Reducer::stop_marking() {
  {
    const MutexLock lock(mutex_);
    if (phase_ != Phase::kOpen) check_alive();
    require_open();
    phase_ = Phase::kFinishing;
  }
  const Deadline deadline = Deadline::after_ms(group_->timeout_ms());
  while (marking_.load(std::memory_order_acquire) != 0) {
    if (deadline.passed()) {
      const MutexLock lock(mutex_);
      phase_ = Phase::kOpen;
      fail(DSC_ERR_TIMEOUT, "another thread of rank %d is still marking a parameter after %d ms",
           group_->rank(), group_->timeout_ms());
    }
    nanosleep(&kPollPeriod, nullptr);
  }
}

std::vector<size_t> Reducer::missing() const {
  std::vector<size_t> indices;
  for (size_t i = 0; i < params_.size(); ++i)
    if (states_[i].mark != Mark::kReady) indices.push_back(i);
  return indices;
}

size_t Reducer::first_missing(size_t bucket) const {
  const auto indices = set_->layout.plan.bucket(bucket);
  return *std::ranges::find_if(indices, [&](size_t i) { return states_[i].mark != Mark::kReady; });
}

// Writes either all gradients or none: only after every bucket has succeeded, as far as the host knows. A
// gradient that is not finite fails this iteration on all ranks and is returned; other failures are thrown.
Failure Reducer::end_complete(void* stream) {
  // Running buckets come first, because their failures say more than the refusal to start another one.
  const size_t running = runner_.launched();
  std::optional<BadBucket> bad;
  const auto wait = [&](size_t b) {
    Failure failure = runner_.await(b);
    if (failure.code == DSC_OK) return;
    if (failure.code != DSC_ERR_NONFINITE) throw Error(failure);
    if (!bad) bad = {b, failure};
  };
  for (size_t b = 0; b < running; ++b) wait(b);
  launch_ready(false);
  runner_.complete_hooks();
  for (size_t b = running; b < set_->size(); ++b) wait(b);
  if (!bad) bad = storage().find_nonfinite();
  storage().begin_delivery(stream);
  for (size_t b = 0; b < set_->size(); ++b) deliver(b, !bad);
  storage().end(stream);
  if (!bad) return {};
  locate_nonfinite(bad->bucket, bad->failure);
  return bad->failure;
}

// Waits for a bucket's results, and writes them to the callers' gradients if `writes` is set.
void Reducer::deliver(size_t bucket, bool writes) {
  deliveries_.clear();
  for (const size_t i : set_->layout.plan.bucket(bucket))
    if (writes && states_[i].gradient && slot(i).bytes > 0)
      deliveries_.push_back({&slot(i), states_[i].gradient});
  storage().deliver(runner_.work(bucket), deliveries_);
}

// Translates the index of an element of a bucket to the parameter and the index in its gradient.
void Reducer::locate_nonfinite(size_t bucket, Failure& failure) const {
  const std::byte* const at =
      set_->bucket(bucket) + failure.index * dtype_bytes(set_->layout.buckets[bucket].dtype);
  for (size_t i = 0; i < params_.size(); ++i) {
    const GradientSlot& slot = this->slot(i);
    if (slot.bucket != bucket || at < slot.view || at >= slot.view + slot.bytes) continue;
    failure.index = static_cast<size_t>(at - slot.view) / dtype_bytes(slot.dtype);
    failure.text = "the gradient of " + label(i) + " on rank " + std::to_string(failure.rank()) +
                   " is a NaN or infinite at element " + std::to_string(failure.index) +
                   "; no gradient was written";
    return;
  }
}

// Does nothing if the group is revoked: end_incomplete() reports that, with the missing gradients.
void Reducer::launch_unless_revoked() {
  if (group_->revoked()) return;
  capture([&] { launch_ready(false); },
          [&](const Error& error) {
            if (!group_->revoked()) throw Error(error);
          });
}

// Tells the other ranks, in place of the next bucket, that this rank starts only `launched` buckets. If
// they have started no more either, the iteration ends alike on all ranks.
Failure Reducer::end_incomplete(size_t launched) {
  for (size_t b = 0; b < launched; ++b)
    if (Failure failure = runner_.await_end(b); failure.code != DSC_OK) return failure;
  if (group_->revoked()) return group_->failure();
  Call call;
  call.kind = OpKind::kReducerFinish;
  call.tag = launched;
  std::snprintf(call.note, sizeof call.note, "no gradient: %s", label(first_missing(launched)).c_str());
  Failure failure;
  capture(
      [&] {
        const auto work = group_->start(call);
        wait_ignoring_failure(*work, Deadline::never());
        failure = work->failure();
      },
      [&](dsc_result_t code, const char* text) {  // on devices, calls are compared before they start
        failure.code = code;
        failure.text = text;
      });
  return failure;
}

// Reports the missing gradients first, as this rank's own fault, unless the failure is worse than a
// difference between ranks.
void Reducer::fail_incomplete(std::span<const size_t> absent, size_t launched, const Failure& failure) const {
  const bool own_fault = failure.code == DSC_OK || failure.code == DSC_ERR_MISMATCH;
  const std::string outcome =
      failure.code == DSC_OK ? reduced_text(launched) : "the reducer is revoked: " + failure.text.str();
  fail(own_fault ? DSC_ERR_STATE : failure.code,
       "expected to have finished reduction, but %zu of %zu parameters did not receive a gradient on rank "
       "%d: %s; %s",
       absent.size(), params_.size(), group_->rank(), params_.name_list(absent).c_str(), outcome.c_str());
}

// Collective, at the same place on all ranks whether gradients were finite or not. The lock is not held
// meanwhile, because close() in another thread must be able to end the waiting.
void Reducer::agree_after() {
  bool was_counting = false;
  bool pinned = false;
  std::vector<int32_t> used;
  std::vector<size_t> order;
  {
    const MutexLock lock(mutex_);
    was_counting = usage_.is_counting();
    usage_.end();
    pinned = pinned_;
    used = usage_.used();
    order = usage_.ready_order();
  }
  if (was_counting || (options_.find_unused == 1 && options_.static_graph == 0)) {
    std::vector<size_t> unused = find_unused(*group_, std::move(used));
    const MutexLock lock(mutex_);
    unused_ = std::move(unused);
  }
  if (was_counting) return;
  auto proposed = rebuilder_.propose(*group_, params_, *set_, order, pinned);
  const MutexLock lock(mutex_);
  next_set_ = std::move(proposed);
}

void Reducer::has_results(bool good) {
  const MutexLock lock(mutex_);
  has_results_ = good;
}

void Reducer::end_iteration() {
  runner_.end();
  const MutexLock lock(mutex_);
  carries_ = false;
  runner_.timeline.finished();
  note_iteration();
  phase_ = Phase::kIdle;
}

// Times are converted in the iterations that are sampled; others are when somebody asks.
void Reducer::note_iteration() {
  if (PhaseSampler::is_sampled(iterations_)) phases_.add(runner_.timeline.read());
  ++iterations_;
}

ReducerReport Reducer::report() const {
  ReducerReport report{};
  report.group = group_.get();
  report.params = &params_;
  report.first_layout = &first_layout_;
  report.layout = next_set_ ? &next_set_->layout : &set_->layout;
  report.bucket_bytes = options_.bucket_bytes;
  report.first_bucket_bytes = options_.first_bucket_bytes;
  report.find_unused = options_.find_unused == 1;
  report.static_graph = options_.static_graph == 1;
  report.joined = !join_.expired();
  report.has_buffers = buffers_.any();
  report.iterations = iterations_;
  report.rebuilds = rebuilder_.count();
  if (runner_.hook()) report.hook = runner_.hook()->name();
  report.ready_order.assign(usage_.order().begin(), usage_.order().end());
  for (size_t i = 0; i < params_.size(); ++i)
    if (iterations_ > 0 && usage_.used()[i] == 0) report.unused.push_back(i);
  report.unused_everywhere = unused_;
  report.times = runner_.timeline.read();
  report.phases = phases_;
  if (group_->revoked()) report.failure = group_->failure().text.str();
  return report;
}

std::string Reducer::report_json() const {
  const MutexLock lock(mutex_);
  require_idle();
  return to_json(report());
}

std::string Reducer::picture() const {
  const MutexLock lock(mutex_);
  require_idle();
  ReducerReport drawn = report();
  drawn.layout = &set_->layout;
  return to_svg(drawn);
}

}  // namespace dsc
