#include "reducer/timeline.hpp"

namespace dsc {

void Timeline::begin(size_t params, size_t buckets) {
  if (ready_.size() != params) ready_ = std::vector<std::atomic<int64_t>>(params);
  for (auto& time : ready_) time.store(0, std::memory_order_relaxed);
  launched_.assign(buckets, 0);
  reduced_.assign(buckets, 0);
  begun_ = tick_now();
  finishing_ = finished_ = 0;
}

IterationTimes Timeline::read() const {
  const TickScale scale = tick_scale();
  const auto ns_of = [&](int64_t ticks) { return ticks == 0 ? 0 : scale.ns_of(ticks); };
  IterationTimes times{ns_of(begun_), ns_of(finishing_), ns_of(finished_), {}, {}, {}};
  for (const auto& time : ready_) times.ready.push_back(ns_of(time.load(std::memory_order_relaxed)));
  for (const int64_t time : launched_) times.launched.push_back(ns_of(time));
  for (const int64_t time : reduced_) times.reduced.push_back(ns_of(time));
  return times;
}

}  // namespace dsc
