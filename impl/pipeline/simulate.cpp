#include "pipeline/simulate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "pipeline/progress.hpp"

namespace dsc {
namespace {

constexpr int32_t kNobody = -1;
constexpr double kNotYet = std::numeric_limits<double>::infinity();

void check_list(const char* name, const std::vector<double>& list, int32_t parts) {
  if (list.size() != 1 && list.size() != static_cast<size_t>(parts))
    fail(DSC_ERR_INVALID_ARG, "costs->%s has %zu values, expected 1 or %d, one for each part of the model",
         name, list.size(), parts);
  for (size_t i = 0; i < list.size(); ++i)
    if (!std::isfinite(list[i]) || list[i] < 0)
      fail(DSC_ERR_INVALID_ARG, "costs->%s[%zu] is %g, expected a finite value of 0 or more", name, i,
           list[i]);
}

void check_value(const char* name, double value) {
  if (!std::isfinite(value) || value < 0)
    fail(DSC_ERR_INVALID_ARG, "costs->%s is %g, expected a finite value of 0 or more", name, value);
}

constexpr double kMostBuckets = 1e6;

double buckets_of(double bytes, const PipelineCosts& costs) {
  return costs.bucket_bytes > 0 ? std::ceil(bytes / costs.bucket_bytes) : 1;
}

void check(const PipelinePlan& plan, const PipelineCosts& costs) {
  const int32_t parts = plan.placement.parts();
  check_list("forward", costs.forward, parts);
  check_list("backward_input", costs.backward_input, parts);
  check_list("backward_weight", costs.backward_weight, parts);
  check_list("message_bytes", costs.message_bytes, parts);
  check_list("activation_bytes", costs.activation_bytes, parts);
  check_list("static_bytes", costs.static_bytes, parts);
  check_list("gradient_bytes", costs.gradient_bytes, parts);
  check_value("overlap", costs.overlap);
  check_value("latency", costs.latency);
  check_value("bytes_per_time", costs.bytes_per_time);
  check_value("bucket_bytes", costs.bucket_bytes);
  check_value("reduce_latency", costs.reduce_latency);
  check_value("reduce_bytes_per_time", costs.reduce_bytes_per_time);
  for (const double bytes : costs.gradient_bytes)
    if (!(buckets_of(bytes, costs) <= kMostBuckets))
      fail(DSC_ERR_INVALID_ARG,
           "costs->bucket_bytes is %g, expected more: gradients of %g bytes must fit in at most %g buckets",
           costs.bucket_bytes, bytes, kMostBuckets);
}

// The times at which data arrives at the part that needs it. For every part and micro-batch there are two:
// the output of its forward pass arrives at the next part, and the gradient from its input half arrives at
// the preceding part.
class Arrivals {
 public:
  Arrivals(int32_t parts, int32_t micro_batches)
      : micro_batches_(static_cast<size_t>(micro_batches)),
        forward_(static_cast<size_t>(parts) * micro_batches_, kNotYet),
        gradient_(forward_.size(), kNotYet) {}

  double& of(const Source& source, int32_t micro_batch) {
    return (
        source.is_gradient
            ? gradient_
            : forward_)[static_cast<size_t>(source.part) * micro_batches_ + static_cast<size_t>(micro_batch)];
  }

 private:
  size_t micro_batches_;
  std::vector<double> forward_, gradient_;
};

// State of a stage during the simulation. `free`, `links` and `network` are the times from which computing,
// sending and all-reduces are possible again.
struct Device {
  int64_t position = 0;
  int64_t size = 0;
  double free = 0;                // time from which it can compute
  std::array<double, 4> links{};  // time from which it can send, indexed by link_to()
  double network = 0;             // time from which it can run an all-reduce
  double first_start = kNotYet;
  int64_t held = 0;  // number of activations that the stage holds
  double bytes = 0;
  // For each chunk, the number of passes until its gradients are complete.
  std::vector<int64_t> passes_left;
  int32_t first_waiter = kNobody;  // head of the list of stages that wait for data from this stage
  int32_t next_waiter = kNobody;
  Source waits_for;
  int32_t waits_for_micro_batch = 0;
};

// Returns the number of the link from a stage to a neighbor: the preceding or the following stage, or the
// other end of the pipeline if the stages form a ring.
size_t link_to(int32_t stage, int32_t to) {
  if (to == stage - 1) return 0;
  if (to == stage + 1) return 1;
  return to < stage ? 2 : 3;
}

// Runs the simulation.
class Clock {
 public:
  Clock(const PipelinePlan& plan, const PipelineCosts& costs, bool record)
      : plan_(plan),
        costs_(costs),
        placement_(plan.placement),
        record_(record),
        progress_(plan),
        arrivals_(placement_.parts(), plan.spec.micro_batches),
        devices_(static_cast<size_t>(placement_.stages())) {
    report_.stages.resize(devices_.size());
    if (record_) report_.timeline.resize(devices_.size());
    causes_.resize(devices_.size());
    for (int32_t s = 0; s < placement_.stages(); ++s) prepare(s);
  }

  PipelineReport run() {
    for (int32_t s = 0; s < placement_.stages(); ++s) runnable_.push_back(s);
    while (!runnable_.empty()) {
      const int32_t stage = runnable_.back();
      runnable_.pop_back();
      while (advance(stage)) {
      }
    }
    expect_all_done();
    for (size_t s = 0; s < devices_.size(); ++s) close(devices_[s], report_.stages[s]);
    return std::move(report_);
  }

  Arrivals& arrivals() { return arrivals_; }
  // For each stage, the index of the operation whose all-reduces started the latest period in which the
  // network was busy without a gap.
  const std::vector<size_t>& causes() const { return causes_; }

 private:
  Device& at(int32_t stage) { return devices_[static_cast<size_t>(stage)]; }
  StageReport& report(int32_t stage) { return report_.stages[static_cast<size_t>(stage)]; }
  int32_t part(int32_t stage, const Compute& op) const { return placement_.part(stage, op.chunk); }

  void prepare(int32_t stage) {
    Device& self = at(stage);
    self.size = plan_.order->size(stage);
    self.passes_left.assign(static_cast<size_t>(placement_.chunks()), plan_.spec.micro_batches);
    for (int32_t chunk = 0; chunk < placement_.chunks(); ++chunk)
      self.bytes += of_part(costs_.static_bytes, placement_.part(stage, chunk));
    report(stage).peak_bytes = self.bytes;
    if (record_) report_.timeline[static_cast<size_t>(stage)].reserve(static_cast<size_t>(self.size));
  }

  double duration(int32_t part, PipeOp op) const {
    if (op == PipeOp::kForward) return of_part(costs_.forward, part);
    double sum = 0;
    if (runs_input_half(op)) sum += of_part(costs_.backward_input, part);
    if (runs_weight_half(op)) sum += of_part(costs_.backward_weight, part);
    return sum;
  }

  // Raises `start` to the time at which the input arrives. If that time is not known yet, adds the stage to
  // the waiting ones and returns false.
  bool find_input(int32_t stage, int64_t k, const Compute& op, double& start) {
    progress_.check(stage, k, op);
    const Source from = source_of(placement_, part(stage, op), op.op);
    if (from.part == Source::kNone) return true;
    const double there = arrivals_.of(from, op.micro_batch);
    if (there < kNotYet) {
      start = std::max(start, there);
      return true;
    }
    Device& self = at(stage);
    Device& holder = at(placement_.stage(from.part));
    self.waits_for = from;
    self.waits_for_micro_batch = op.micro_batch;
    self.next_waiter = holder.first_waiter;
    holder.first_waiter = stage;
    return false;
  }

  // Runs the next operation of a stage, or the next two if they overlap.
  bool advance(int32_t stage) {
    Device& self = at(stage);
    if (self.position == self.size) return false;
    const int64_t k = self.position;
    const Compute first = plan_.order->at(stage, k);
    if (first.op == kIdle) return ++self.position, true;
    const bool is_pair = first.overlaps && k + 1 < self.size;
    const Compute second = is_pair ? plan_.order->at(stage, k + 1) : Compute{};
    progress_.check_pair(stage, k, first, is_pair ? &second : nullptr);
    double start = self.free;
    if (!find_input(stage, k, first, start) || (is_pair && !find_input(stage, k + 1, second, start)))
      return false;
    double time = duration(part(stage, first), first.op);
    if (is_pair) time = costs_.overlap * (time + duration(part(stage, second), second.op));
    if (!std::isfinite(start + time))
      fail(DSC_ERR_INVALID_ARG, "the times add up to %g, expected a finite sum: stage %d, operation %lld",
           start + time, stage, static_cast<long long>(k));
    finish(stage, first, start, start + time);
    if (is_pair) finish(stage, second, start, start + time);
    release(stage, first);
    if (is_pair) release(stage, second);
    self.free = start + time;
    self.first_start = std::min(self.first_start, start);
    report(stage).busy += time;
    self.position += is_pair ? 2 : 1;
    return true;
  }

  void finish(int32_t stage, const Compute& op, double start, double end) {
    progress_.note(stage, op);
    if (record_) report_.timeline[static_cast<size_t>(stage)].push_back({stage, op, start, end});
    const int32_t p = part(stage, op);
    if (op.op == PipeOp::kForward) hold(stage, p, 1);
    if (op.op == PipeOp::kForward && placement_.has_output(p)) give(stage, {p, false}, p + 1, op, end);
    if (runs_input_half(op.op) && placement_.has_input(p)) give(stage, {p, true}, p - 1, op, end);
    if (runs_weight_half(op.op) && --at(stage).passes_left[static_cast<size_t>(op.chunk)] == 0)
      reduce(stage, p, start, end);
  }

  // Frees the activation if the operation was the last one that needed it. Of two overlapping operations,
  // each holds its memory until both have ended, so this is called after that.
  void release(int32_t stage, const Compute& op) {
    if (runs_weight_half(op.op) || plan_.spec.forward_only) hold(stage, part(stage, op), -1);
  }

  void hold(int32_t stage, int32_t part, int64_t change) {
    Device& self = at(stage);
    self.held += change;
    self.bytes += static_cast<double>(change) * of_part(costs_.activation_bytes, part);
    StageReport& seen = report(stage);
    seen.peak_activations = std::max(seen.peak_activations, self.held);
    seen.peak_bytes = std::max(seen.peak_bytes, self.bytes);
  }

  // A link transfers only one message at a time, so messages from one stage to another are sent one after
  // another.
  void give(int32_t stage, const Source& what, int32_t to_part, const Compute& op, double end) {
    Device& self = at(stage);
    const int32_t to = placement_.stage(to_part);
    double there = end;
    if (to != stage) {
      double& link = self.links[link_to(stage, to)];
      const double bytes = of_part(costs_.message_bytes, std::min(what.part, to_part));
      link = std::max(link, end) + (costs_.bytes_per_time > 0 ? bytes / costs_.bytes_per_time : 0);
      there = link + costs_.latency;
    }
    arrivals_.of(what, op.micro_batch) = there;
    wake(self, what, op.micro_batch);
  }

  // Makes the stages runnable that wait for this result, and removes them from the list of waiting stages.
  void wake(Device& holder, const Source& what, int32_t micro_batch) {
    for (int32_t* link = &holder.first_waiter; *link != kNobody;) {
      Device& waiter = at(*link);
      const bool is_it = waiter.waits_for.part == what.part &&
                         waiter.waits_for.is_gradient == what.is_gradient &&
                         waiter.waits_for_micro_batch == micro_batch;
      if (!is_it) {
        link = &waiter.next_waiter;
        continue;
      }
      runnable_.push_back(*link);
      *link = waiter.next_waiter;
    }
  }

  // Simulates the all-reduces of a part's gradients. The gradients are assumed to become complete at an even
  // rate during the last operation that adds to them, so that buckets are reduced in the meantime.
  void reduce(int32_t stage, int32_t part, double start, double end) {
    const double bytes = of_part(costs_.gradient_bytes, part);
    if (bytes <= 0) return;
    Device& self = at(stage);
    const double buckets = buckets_of(bytes, costs_);
    for (double done = 0; done < buckets; ++done) {
      const double size =
          std::min(costs_.bucket_bytes > 0 ? costs_.bucket_bytes : bytes, bytes - done * costs_.bucket_bytes);
      const double ready = start + (end - start) * ((done + 1) / buckets);
      const double moving = costs_.reduce_bytes_per_time > 0 ? size / costs_.reduce_bytes_per_time : 0;
      if (ready >= self.network && record_) note_cause(stage);
      self.network = std::max(self.network, ready) + costs_.reduce_latency + moving;
    }
  }

  // Records that the network was idle until the latest operation of this stage.
  void note_cause(int32_t stage) {
    const auto& spans = report_.timeline[static_cast<size_t>(stage)];
    causes_[static_cast<size_t>(stage)] = spans.size() - 1;
  }

  void expect_all_done() {
    std::vector<Stuck> stuck;
    for (int32_t s = 0; s < placement_.stages(); ++s) {
      const Device& self = at(s);
      if (self.position == self.size) continue;
      int64_t k = self.position;
      Compute op = plan_.order->at(s, k);
      if (const Source from = source_of(placement_, part(s, op), op.op);
          from.part != self.waits_for.part || from.is_gradient != self.waits_for.is_gradient)
        op = plan_.order->at(s, ++k);
      stuck.push_back({s, k, op, placement_.stage(self.waits_for.part)});
    }
    if (!stuck.empty()) refuse_stuck(stuck);
    for (int32_t s = 0; s < placement_.stages(); ++s) progress_.expect_complete(s);
  }

  void close(const Device& self, StageReport& seen) {
    seen.start = self.first_start;
    seen.end = self.free;
    seen.reduced = self.network;
    report_.makespan = std::max({report_.makespan, seen.end, seen.reduced});
  }

  const PipelinePlan& plan_;
  const PipelineCosts& costs_;
  const Placement placement_;
  const bool record_;
  Progress progress_;
  Arrivals arrivals_;
  std::vector<Device> devices_;
  std::vector<int32_t> runnable_;
  std::vector<size_t> causes_;
  PipelineReport report_;
};

// Finds the critical path by walking back from the operation that ends last. Each operation started either
// when the preceding one on its stage ended, or when its input arrived.
class PathWalk {
 public:
  PathWalk(const PipelinePlan& plan, const PipelineReport& report, Clock& clock)
      : placement_(plan.placement), report_(report), arrivals_(clock.arrivals()), causes_(clock.causes()) {
    const auto all = static_cast<size_t>(placement_.parts()) * static_cast<size_t>(plan.spec.micro_batches);
    micro_batches_ = static_cast<size_t>(plan.spec.micro_batches);
    forward_.resize(all);
    input_half_.resize(all);
    for (const auto& spans : report.timeline)
      for (size_t k = 0; k < spans.size(); ++k) note(spans[k], static_cast<int32_t>(k));
  }

  std::vector<PipelineSpan> walk() const {
    std::vector<PipelineSpan> path;
    for (const PipelineSpan* span = last(); span; span = before(*span)) path.push_back(*span);
    std::ranges::reverse(path);
    return path;
  }

 private:
  size_t index(int32_t part, int32_t micro_batch) const {
    return static_cast<size_t>(part) * micro_batches_ + static_cast<size_t>(micro_batch);
  }
  const std::vector<PipelineSpan>& of(int32_t stage) const {
    return report_.timeline[static_cast<size_t>(stage)];
  }

  void note(const PipelineSpan& span, int32_t k) {
    const size_t at = index(placement_.part(span.stage, span.op.chunk), span.op.micro_batch);
    if (span.op.op == PipeOp::kForward) forward_[at] = k;
    if (runs_input_half(span.op.op)) input_half_[at] = k;
  }

  const PipelineSpan* last() const {
    const PipelineSpan* found = nullptr;
    double latest = -1;
    for (size_t s = 0; s < report_.stages.size(); ++s) {
      const double end = std::max(report_.stages[s].end, report_.stages[s].reduced);
      if (report_.timeline[s].empty() || end <= latest) continue;
      latest = end;
      const bool is_reduction = report_.stages[s].reduced > report_.stages[s].end;
      found = is_reduction ? &report_.timeline[s][causes_[s]] : &report_.timeline[s].back();
    }
    return found;
  }

  const PipelineSpan* cause(const PipelineSpan& span) const {
    const Source from = source_of(placement_, placement_.part(span.stage, span.op.chunk), span.op.op);
    if (from.part == Source::kNone || arrivals_.of(from, span.op.micro_batch) != span.start) return nullptr;
    const size_t at = index(from.part, span.op.micro_batch);
    const int32_t k = (from.is_gradient ? input_half_ : forward_)[at];
    return &of(placement_.stage(from.part))[static_cast<size_t>(k)];
  }

  const PipelineSpan* before(const PipelineSpan& span) const {
    if (span.start <= 0) return nullptr;
    if (const PipelineSpan* found = cause(span)) return found;
    const PipelineSpan* first = of(span.stage).data();
    const PipelineSpan* other = &span;
    while (other > first && (other - 1)->start == span.start && (other - 1)->op.overlaps) --other;
    if (other != &span)
      if (const PipelineSpan* found = cause(*other)) return found;
    if (span.op.overlaps && &span < first + of(span.stage).size() - 1)
      if (const PipelineSpan* found = cause(*(&span + 1))) return found;
    return other > first ? other - 1 : nullptr;
  }

  const Placement placement_;
  const PipelineReport& report_;
  Arrivals& arrivals_;
  const std::vector<size_t>& causes_;
  size_t micro_batches_ = 0;
  std::vector<int32_t> forward_, input_half_;  // index of each pass in the timeline of its stage
};

}  // namespace

PipelineReport simulate(const PipelinePlan& plan, const PipelineCosts& costs,
                        const SimulationWishes& wishes) {
  plan.expect_order();
  check(plan, costs);
  Clock clock(plan, costs, wishes.timeline || wishes.critical_path);
  PipelineReport report = clock.run();
  if (wishes.critical_path) report.critical_path = PathWalk(plan, report, clock).walk();
  if (!wishes.timeline) report.timeline.clear();
  return report;
}

}  // namespace dsc
