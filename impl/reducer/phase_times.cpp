#include "reducer/phase_times.hpp"

#include <algorithm>
#include <span>

namespace dsc {
namespace {

constexpr uint64_t kFirstSamples = 10;
constexpr uint64_t kSamplePeriod = 100;

// Returns the earliest time that is known; 0 if none is known.
int64_t earliest(std::span<const int64_t> times) {
  int64_t least = 0;
  for (const int64_t time : times)
    if (time != 0 && (least == 0 || time < least)) least = time;
  return least;
}

int64_t latest_of(std::span<const int64_t> times) { return times.empty() ? 0 : std::ranges::max(times); }

}  // namespace

int64_t PhaseTimes::overlap() const noexcept {
  const int64_t start = std::max(backward_comm_start, backward_compute_start);
  const int64_t end = std::min(backward_comm_end, backward_compute_end);
  return std::max<int64_t>(0, end - start);
}

// Computes the phases of an iteration. If the end of a reduction is unknown, because it ran on a device, the
// end of finish() is used.
PhaseTimes phases_of(const IterationTimes& times) {
  PhaseTimes phases;
  phases.forward_compute_start = times.begun;
  phases.backward_compute_start = earliest(times.ready);
  phases.backward_compute_end = latest_of(times.ready);
  phases.backward_comm_start = earliest(times.launched);
  const bool all_known = std::ranges::none_of(times.reduced, [](int64_t time) { return time == 0; });
  phases.backward_comm_end =
      std::max(all_known ? latest_of(times.reduced) : times.finished, phases.backward_comm_start);
  phases.finished = times.finished;
  return phases;
}

bool PhaseSampler::is_sampled(uint64_t iteration) noexcept {
  return iteration > 0 && (iteration <= kFirstSamples || iteration % kSamplePeriod == 0);
}

void PhaseSampler::add(const IterationTimes& times) {
  latest_ = phases_of(times);
  sum_.forward_compute += latest_.forward_compute();
  sum_.backward_compute += latest_.backward_compute();
  sum_.backward_comm += latest_.backward_comm();
  sum_.overlap += latest_.overlap();
  sum_.exposed += latest_.exposed();
  ++samples_;
}

MeanPhaseTimes PhaseSampler::mean() const noexcept {
  if (samples_ == 0) return {};
  return {sum_.forward_compute / samples_, sum_.backward_compute / samples_, sum_.backward_comm / samples_,
          sum_.overlap / samples_, sum_.exposed / samples_};
}

}  // namespace dsc
