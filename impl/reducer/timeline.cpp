#include "reducer/timeline.hpp"

#include <utility>

namespace dsc {

void Timeline::set_buckets(std::span<const size_t> bucket_of, std::vector<size_t> bytes) {
  std::vector<Ticks> launched(bytes.size()), reduced(bytes.size());
  const MutexLock lock(mutex_);
  bucket_of_.assign(bucket_of.begin(), bucket_of.end());
  bytes_ = std::move(bytes);
  launched_ = std::move(launched);
  reduced_ = std::move(reduced);
}

void Timeline::begin() noexcept {
  for (auto* times : {&ready_, &launched_, &reduced_})
    for (Ticks& time : *times) stamp(time, 0);
  stamp(finishing_, 0);
  stamp(finished_, 0);
  stamp(begun_);
  number_.fetch_add(1, std::memory_order_relaxed);
}

IterationTimes Timeline::read() const {
  const TickScale scale = tick_scale();
  const auto ns_of = [&](const Ticks& time) {
    const int64_t ticks = time.load(std::memory_order_relaxed);
    return ticks == 0 ? 0 : scale.ns_of(ticks);
  };
  IterationTimes times{ns_of(begun_), ns_of(finishing_), ns_of(finished_), {}, {}, {}};
  for (const Ticks& time : ready_) times.ready.push_back(ns_of(time));
  for (const Ticks& time : launched_) times.launched.push_back(ns_of(time));
  for (const Ticks& time : reduced_) times.reduced.push_back(ns_of(time));
  return times;
}

RecordedIteration Timeline::read_iteration() const {
  const MutexLock lock(mutex_);
  RecordedIteration iteration{group_, number_.load(), begun_.load(), finishing_.load(), finished_.load(), {},
                              {}};
  for (size_t i = 0; i < bucket_of_.size(); ++i)
    iteration.gradients.push_back({params_[i], bucket_of_[i], ready_[i].load()});
  for (size_t b = 0; b < bytes_.size(); ++b)
    iteration.buckets.push_back({bytes_[b], launched_[b].load(), reduced_[b].load()});
  return iteration;
}

}  // namespace dsc
