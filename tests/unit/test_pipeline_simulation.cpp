// The simulated costs of schedules, compared with published tables, with formulas for random sizes, and with
// a second implementation.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "pipeline/catalog.hpp"
#include "pipeline/simulate.hpp"
#include "repetitions.h"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using dsc::Compute;
using dsc::PipelineCosts;
using dsc::PipelinePlan;
using dsc::PipelineReport;
using dsc::PipeOp;

PipelineCosts costs_of(double forward, double input, double weight, double latency = 0) {
  PipelineCosts costs;
  costs.forward = {forward};
  costs.backward_input = {input};
  costs.backward_weight = {weight};
  costs.latency = latency;
  return costs;
}

std::shared_ptr<const PipelinePlan> plan_of(const char* name, int32_t stages, int32_t micro_batches,
                                            int32_t chunks = 0) {
  return dsc::make_plan({.name = name, .stages = stages, .micro_batches = micro_batches, .chunks = chunks});
}

double own_window_idle(const PipelineReport& report) {
  double most = 0;
  for (const auto& stage : report.stages) most = std::max(most, stage.end - stage.start - stage.busy);
  return most;
}

std::vector<int64_t> peaks(const PipelineReport& report) {
  std::vector<int64_t> all;
  for (const auto& stage : report.stages) all.push_back(stage.peak_activations);
  return all;
}

void near(const std::string& what, double got, double expected, double tolerance = 1e-9) {
  if (std::abs(got - expected) > tolerance * std::max(1.0, std::abs(expected)))
    fail_msg("%s: got %.10g, expected %.10g", what.c_str(), got, expected);
}

// ---- tables ----

struct Row {
  const char* name;
  int32_t stages, micro_batches, chunks;
  double latency;
  double makespan, idle, own_idle;  // own_idle < 0: not in the table
  std::vector<int64_t> peaks;
};

void units_of_one(void**) {
  const std::vector<Row> rows{
      {"gpipe", 2, 4, 1, 0, 15, 3, 3, {4, 4}},
      {"1f1b", 2, 4, 1, 0, 15, 3, 3, {2, 1}},
      {"1f1b", 2, 4, 1, 1, 19, 7, 7, {2, 1}},
      {"zb_h1", 2, 4, 1, 0, 13, 1, 1, {2, 2}},
      {"zb_h2", 2, 4, 1, 0, 13, 1, 0, {3, 3}},
      {"gpipe", 4, 4, 1, 0, 21, 9, 9, {4, 4, 4, 4}},
      {"1f1b", 4, 4, 1, 0, 21, 9, 9, {4, 3, 2, 1}},
      {"1f1b", 4, 4, 1, 1, 31, 19, 19, {4, 3, 2, 1}},
      {"zb_h1", 4, 4, 1, 0, 15, 3, 3, {4, 4, 4, 4}},
      {"zb_h2", 4, 4, 1, 0, 16, 4, 3, {4, 4, 4, 4}},
      {"gpipe", 4, 8, 1, 0, 33, 9, 9, {8, 8, 8, 8}},
      {"1f1b", 4, 8, 1, 0, 33, 9, 9, {4, 3, 2, 1}},
      {"1f1b", 4, 8, 1, 1, 49, 25, 25, {4, 3, 2, 1}},
      {"zb_h1", 4, 8, 1, 0, 27, 3, 3, {4, 4, 4, 4}},
      {"zb_h2", 4, 8, 1, 0, 27, 3, 0, {7, 7, 7, 7}},
      {"interleaved_1f1b", 2, 4, 2, 0, 27, 3, -1, {5, 3}},
      {"looped_bfs", 2, 4, 2, 0, 27, 3, -1, {8, 8}},
      {"interleaved_1f1b", 2, 4, 3, 0, 39, 3, -1, {7, 5}},
      {"looped_bfs", 2, 4, 3, 0, 39, 3, -1, {12, 12}},
      {"interleaved_1f1b", 4, 4, 2, 0, 33, 9, -1, {8, 8, 7, 5}},
      {"looped_bfs", 4, 4, 2, 0, 33, 9, -1, {8, 8, 8, 8}},
      {"interleaved_1f1b", 4, 4, 3, 0, 45, 9, -1, {12, 12, 11, 9}},
      {"looped_bfs", 4, 4, 3, 0, 45, 9, -1, {12, 12, 12, 12}},
      {"interleaved_1f1b", 4, 8, 2, 0, 57, 9, -1, {11, 9, 7, 5}},
      {"looped_bfs", 4, 8, 2, 0, 57, 9, -1, {16, 16, 16, 16}},
      {"interleaved_1f1b", 4, 8, 3, 0, 81, 9, -1, {15, 13, 11, 9}},
      {"looped_bfs", 4, 8, 3, 0, 81, 9, -1, {24, 24, 24, 24}},
      {"dualpipe_v", 2, 4, 2, 0, 26, 2, -1, {5, 5}},
      {"dualpipe_v", 4, 8, 2, 0, 54, 6, -1, {9, 9, 9, 9}},
      {"dualpipe_v", 4, 10, 2, 0, 66, 6, -1, {9, 9, 9, 9}},
      {"zb_v", 2, 4, 2, 0, 25, 1, 0, {4, 4}},
      {"zb_v", 4, 7, 2, 0, 45, 3, 0, {8, 8, 8, 8}},
      {"zb_v", 4, 8, 2, 0, 51, 3, 0, {8, 8, 8, 8}},
      {"v_half", 4, 8, 2, 0, 53, 5, -1, {6, 6, 6, 6}},
      {"v_min", 4, 8, 2, 0, 59, 11, -1, {4, 4, 4, 4}},
  };
  for (const Row& row : rows) {
    const auto plan = plan_of(row.name, row.stages, row.micro_batches, row.chunks);
    const auto report = simulate(*plan, costs_of(1, 1, 1, row.latency));
    const std::string what = std::string(row.name) + " " + std::to_string(row.stages) + " x " +
                             std::to_string(row.micro_batches) + " x " + std::to_string(row.chunks);
    near(what + " makespan", report.makespan, row.makespan);
    near(what + " idle", report.makespan - report.stages[0].busy, row.idle);
    if (row.own_idle >= 0) near(what + " idle in its own window", own_window_idle(report), row.own_idle);
    const auto got = peaks(report);
    const auto most = *std::max_element(got.begin(), got.end());
    if (std::string(row.name) == "v_half" || std::string(row.name) == "v_min")
      assert_int_equal(most, row.peaks[0]);
    else if (got != row.peaks)
      fail_msg("%s: peaks differ, stage 0 has %d", what.c_str(), static_cast<int>(got[0]));
  }
}

void other_units(void**) {
  const auto makespan = [](const char* name, int32_t p, int32_t m, const PipelineCosts& costs) {
    return simulate(*plan_of(name, p, m), costs).makespan;
  };
  PipelineCosts shorter = costs_of(1, 1, 1);
  shorter.overlap = 2.5 / 3;
  near("dualpipe_v 2 x 4", makespan("dualpipe_v", 2, 4, shorter), 24);
  near("dualpipe_v 4 x 8", makespan("dualpipe_v", 4, 8, shorter), 49);
  near("dualpipe_v 4 x 10", makespan("dualpipe_v", 4, 10, shorter), 59);
  near("zb_v", makespan("zb_v", 4, 8, costs_of(10, 12, 8)), 516);
  near("zb_v", own_window_idle(simulate(*plan_of("zb_v", 4, 8), costs_of(10, 12, 8))), 24);
  near("v_min 8", makespan("v_min", 4, 8, costs_of(10, 12, 8)), 688);
  near("v_min 12", makespan("v_min", 4, 12, costs_of(10, 12, 8)), 976);
  near("v_min 16", makespan("v_min", 4, 16, costs_of(10, 12, 8)), 1264);
}

// Times that the authors of zero bubble pipelines measured, in microseconds.
void profiled_times(void**) {
  struct Profile {
    int32_t p, m;
    double forward, input, weight, latency, one_f_one_b, h1, h2;
  };
  for (const Profile& it : {Profile{8, 24, 18522, 18086, 9337, 601, 0.2431, 0.1585, 0.1083},
                            Profile{16, 48, 11347, 11248, 8132, 377, 0.2552, 0.1397, 0.0672}}) {
    const auto rate = [&](const char* name) {
      const auto report =
          simulate(*plan_of(name, it.p, it.m), costs_of(it.forward, it.input, it.weight, it.latency));
      double window = 0;
      for (const auto& stage : report.stages) window = std::max(window, stage.end - stage.start);
      return 1 - it.m * (it.forward + it.input + it.weight) / window;
    };
    near("1f1b", rate("1f1b"), it.one_f_one_b, 5e-5);
    near("zb_h1", rate("zb_h1"), it.h1, 5e-5);
    near("zb_h2", rate("zb_h2"), it.h2, 5e-5);
  }
}

// ---- formulas, for random sizes ----

struct Draw {
  std::mt19937 random{7};
  int32_t up_to(int32_t least, int32_t most) {
    return least + static_cast<int32_t>(random() % static_cast<uint32_t>(most - least + 1));
  }
};

void bubbles_of_whole_backward_passes(void**) {
  Draw draw;
  const int cases = test_repetitions(600, 60);
  for (int i = 0; i < cases; ++i) {
    const int32_t p = draw.up_to(1, 8), v = draw.up_to(1, 3), m = p * draw.up_to(1, 4);
    const double f = draw.up_to(1, 9), d = draw.up_to(1, 9), w = draw.up_to(0, 9);
    const auto idle = [&](const char* name, int32_t chunks) {
      const auto report = simulate(*plan_of(name, p, m, chunks), costs_of(f, d, w));
      return report.makespan - report.stages[0].busy;
    };
    for (const auto& [name, chunks] :
         {std::pair{"gpipe", 1}, {"1f1b", 1}, {"interleaved_1f1b", v}, {"looped_bfs", v}})
      near(name, idle(name, chunks), (p - 1) * (f + d + w));
  }
}

void bubbles_of_split_backward_passes(void**) {
  Draw draw;
  const int cases = test_repetitions(1000, 100);
  for (int i = 0; i < cases; ++i) {
    const int32_t p = draw.up_to(1, 8), m = 2 * p - 1 + draw.up_to(0, 9);
    const double f = draw.up_to(1, 9), d = draw.up_to(1, 9), w = draw.up_to(0, 9);
    if (w > std::min(f, d)) continue;
    const auto h1 = simulate(*plan_of("zb_h1", p, m), costs_of(f, d, w));
    near("zb_h1", h1.makespan - h1.stages[0].busy, (p - 1) * (f + d - w));
    near("zb_h1 in its own window", own_window_idle(h1), (p - 1) * (f + d - w));
    for (const int64_t peak : peaks(h1)) assert_int_equal(peak, p);
    const auto h2 = simulate(*plan_of("zb_h2", p, m), costs_of(f, d, w));
    near("zb_h2", own_window_idle(h2), (p - 1) * (f + d - 2 * w));
    for (const int64_t peak : peaks(h2)) assert_int_equal(peak, 2 * p - 1);
  }
}

void bubbles_of_v_shapes(void**) {
  Draw draw;
  const int cases = test_repetitions(300, 30);
  for (int i = 0; i < cases; ++i) {
    const int32_t p = draw.up_to(1, 8), m = 2 * p + draw.up_to(0, 9);
    const auto v = simulate(*plan_of("zb_v", p, m), costs_of(1, 1, 1));
    near("zb_v", own_window_idle(v), 0);
    for (const int64_t peak : peaks(v)) assert_int_equal(peak, 2 * p);
    const auto half = simulate(*plan_of("v_half", p, m), costs_of(1, 1, 1));
    const auto min = simulate(*plan_of("v_min", p, m), costs_of(1, 1, 1));
    for (const int64_t peak : peaks(half)) assert_true(peak <= 2 * ((p + 2) / 2));
    for (const int64_t peak : peaks(min)) assert_true(peak <= 2 * ((p + 4) / 3));
  }
}

// The formula of DualPipeV, which is exact if w <= d <= f and max(f, b) <= o <= f + b.
void closed_form_of_dualpipe_v(void**) {
  Draw draw;
  int exact = 0;
  while (exact < 300) {
    const int32_t p = draw.up_to(1, 8), m = 2 * p + draw.up_to(0, 9);
    const double w = draw.up_to(1, 9), d = w + draw.up_to(0, 5), f = d + draw.up_to(0, 5), b = d + w;
    const double o = std::max(f, b) + (f + b - std::max(f, b)) * draw.up_to(0, 4) / 4;
    PipelineCosts costs = costs_of(f, d, w);
    costs.overlap = o / (f + b);
    const double expected =
        (p - 1) * f + 2 * p * f + (2 * (m - p) - 1) * o + (p - 1) * o + (2 * p - 1) * d + w + 2 * b + f;
    near("dualpipe_v", simulate(*plan_of("dualpipe_v", p, m), costs).makespan, expected);
    ++exact;
  }
}

void peaks_of_the_others(void**) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = 1; m <= 20; ++m) {
      const auto gpipe = peaks(simulate(*plan_of("gpipe", p, m), {}));
      const auto one = peaks(simulate(*plan_of("1f1b", p, m), {}));
      for (int32_t s = 0; s < p; ++s) {
        assert_int_equal(gpipe[static_cast<size_t>(s)], m);
        assert_int_equal(one[static_cast<size_t>(s)], std::min(p - s, m));
      }
      for (int32_t v = 2; v <= 3 && m % p == 0 && m >= 2 * p; ++v) {
        const auto got = peaks(simulate(*plan_of("interleaved_1f1b", p, m, v), {}));
        for (int32_t s = 0; s < p; ++s)
          assert_int_equal(got[static_cast<size_t>(s)], std::min(2 * (p - 1 - s) + (v - 1) * p + 1, m * v));
      }
    }
}

// ---- a second implementation: asks recursively for the inputs of an operation, from the end ----

class Reference {
 public:
  Reference(const PipelinePlan& plan, const PipelineCosts& costs) : plan_(plan), costs_(costs) {
    for (int32_t s = 0; s < plan.spec.stages; ++s)
      for (int64_t k = 0; k < plan.order->size(s); ++k) {
        const Compute op = plan.order->at(s, k);
        const int32_t part = plan.placement.part(s, op.chunk);
        if (op.op == PipeOp::kForward) where_[{0, part, op.micro_batch}] = {s, k};
        if (runs_input_half(op.op)) where_[{1, part, op.micro_batch}] = {s, k};
      }
  }

  double makespan() {
    double last = 0;
    for (int32_t s = 0; s < plan_.spec.stages; ++s)
      for (int64_t k = 0; k < plan_.order->size(s); ++k) last = std::max(last, end(s, k));
    return last;
  }

 private:
  using GridIndex = std::pair<int32_t, int64_t>;

  double cost(const std::vector<double>& list, int32_t part) const {
    return list.size() == 1 ? list[0] : list[static_cast<size_t>(part)];
  }

  double own_time(int32_t s, int64_t k) const {
    const Compute op = plan_.order->at(s, k);
    const int32_t part = plan_.placement.part(s, op.chunk);
    switch (op.op) {
      case PipeOp::kForward:
        return cost(costs_.forward, part);
      case PipeOp::kBackwardInput:
        return cost(costs_.backward_input, part);
      case PipeOp::kBackwardWeight:
        return cost(costs_.backward_weight, part);
      default:
        return cost(costs_.backward_input, part) + cost(costs_.backward_weight, part);
    }
  }

  double input(int32_t s, int64_t k) {
    const Compute op = plan_.order->at(s, k);
    const int32_t part = plan_.placement.part(s, op.chunk);
    const bool forward = op.op == PipeOp::kForward;
    const int32_t other = part + (forward ? -1 : 1);
    if (other < 0 || other >= plan_.placement.parts() || op.op == PipeOp::kBackwardWeight) return 0;
    const auto [stage, position] = where_.at({forward ? 0 : 1, other, op.micro_batch});
    return end(stage, position) + (stage == s ? 0 : costs_.latency);
  }

  double end(int32_t s, int64_t k) {
    if (k > 0 && plan_.order->at(s, k - 1).overlaps) return end(s, k - 1);
    if (const auto known = ends_.find({s, k}); known != ends_.end()) return known->second;
    double start = std::max(k > 0 ? end(s, k - 1) : 0, input(s, k));
    double time = own_time(s, k);
    if (plan_.order->at(s, k).overlaps) {
      start = std::max(start, input(s, k + 1));
      time = costs_.overlap * (time + own_time(s, k + 1));
    }
    return ends_[{s, k}] = start + time;
  }

  const PipelinePlan& plan_;
  const PipelineCosts& costs_;
  std::map<std::tuple<int, int32_t, int32_t>, GridIndex> where_;
  std::map<GridIndex, double> ends_;
};

void another_way(void**) {
  Draw draw;
  const char* names[] = {"gpipe",  "1f1b",  "interleaved_1f1b", "looped_bfs",     "zb_h1", "zb_h2", "zb_v",
                         "v_half", "v_min", "dualpipe_v",       "deepspeed_train"};
  const int cases = test_repetitions(600, 60);
  for (int i = 0; i < cases; ++i) {
    const int32_t p = draw.up_to(1, 4), m = p * draw.up_to(2, 4);
    const auto plan = plan_of(names[draw.up_to(0, 10)], p, m);
    const auto list = [&](int32_t least) {
      std::vector<double> all;
      for (int32_t part = 0; part < plan->placement.parts(); ++part) all.push_back(draw.up_to(least, 20));
      return all;
    };
    PipelineCosts costs;
    costs.forward = list(1);
    costs.backward_input = list(1);
    costs.backward_weight = list(0);
    costs.latency = draw.up_to(0, 5);
    costs.overlap = 0.8;
    near(plan->spec.name, simulate(*plan, costs).makespan, Reference(*plan, costs).makespan());
  }
}

// ---- other parts of a report ----

void a_timeline_and_its_critical_path(void**) {
  Draw draw;
  for (const char* name : {"1f1b", "zb_h1", "zb_v", "dualpipe_v", "looped_bfs", "v_half"}) {
    const int32_t p = draw.up_to(2, 5), m = 2 * p + draw.up_to(0, 5);
    const auto plan = plan_of(name, p, m);
    const auto costs = costs_of(3, 4, 2, 1);
    const auto report = simulate(*plan, costs, {.timeline = true, .critical_path = true});
    double busy = 0;
    for (const auto& spans : report.timeline)
      for (size_t k = 0; k < spans.size(); ++k) {
        assert_true(spans[k].end > spans[k].start);
        if (k > 0 && !spans[k - 1].op.overlaps) assert_true(spans[k].start >= spans[k - 1].end);
        if (k == 0 || !spans[k - 1].op.overlaps) busy += spans[k].end - spans[k].start;
      }
    double sum = 0;
    for (const auto& stage : report.stages) sum += stage.busy;
    near(name, busy, sum);
    const auto& path = report.critical_path;
    assert_true(!path.empty());
    near(name, path.front().start, 0);
    near(name, path.back().end, report.makespan);
    for (size_t i = 1; i < path.size(); ++i)
      near(name, path[i].start - path[i - 1].end, path[i].stage == path[i - 1].stage ? 0 : 1);
  }
}

void messages_take_their_link(void**) {
  PipelineCosts costs = costs_of(1, 1, 1);
  costs.message_bytes = {30};
  // a message takes three units, longer than the operation that makes it
  costs.bytes_per_time = 10;
  const auto report = simulate(*plan_of("gpipe", 2, 4), costs);
  // The last of four messages arrives at 1 + 4 x 3. One F and four B follow. The first of four gradients
  // leaves at 16.
  near("gpipe", report.stages[1].end, 13 + 1 + 8);
  near("gpipe", report.makespan, 16 + 4 * 3 + 2);
}

void memory_and_reductions(void**) {
  PipelineCosts costs = costs_of(1, 1, 1);
  costs.static_bytes = {100};
  costs.activation_bytes = {10, 20};
  costs.gradient_bytes = {64};
  costs.bucket_bytes = 32;
  costs.reduce_bytes_per_time = 16;
  costs.reduce_latency = 0.5;
  const auto report = simulate(*plan_of("1f1b", 2, 4), costs);
  near("stage 0", report.stages[0].peak_bytes, 100 + 2 * 10);
  near("stage 1", report.stages[1].peak_bytes, 100 + 20);
  // Stage 0 ends at 15. Half of its gradients are ready one unit earlier.
  near("reduced", report.stages[0].reduced, 14 + 2 * 2.5);
  near("makespan", report.makespan, 19);
}

// If a reduction ends last, the critical path ends with the operation after which the reduction's network was
// always busy.
void a_critical_path_through_reductions(void**) {
  PipelineCosts costs = costs_of(1, 1, 1);
  costs.gradient_bytes = {0, 100};
  costs.reduce_bytes_per_time = 1;
  const auto report = simulate(*plan_of("looped_bfs", 1, 2, 2), costs, {.critical_path = true});
  near("makespan", report.makespan, 4 + 4 + 100);
  near("the end of the path", report.critical_path.back().end, 8);
  assert_int_equal(report.critical_path.back().op.chunk, 1);
}

void both_of_a_pair_hold_what_they_need(void**) {
  const Compute f0{PipeOp::kForward, 0, 0, false}, f1{PipeOp::kForward, 0, 1, false};
  const Compute b0{PipeOp::kBackward, 0, 0, false}, b1{PipeOp::kBackward, 0, 1, false};
  const auto paired = [](Compute op) {
    op.overlaps = true;
    return op;
  };
  for (const auto& [first, second] : {std::pair{paired(b0), f1}, std::pair{paired(f1), b0}}) {
    const auto plan = dsc::make_custom({.name = "pairs", .micro_batches = 2, .chunks = 1},
                                       {{f0, first, second, b1}}, dsc::PlacementShape::kLoop);
    assert_int_equal(simulate(*plan, {}).stages[0].peak_activations, 2);
  }
}

void forward_only(void**) {
  const auto plan = dsc::make_plan(
      {.name = "interleaved_1f1b", .stages = 4, .micro_batches = 8, .chunks = 2, .forward_only = true});
  const auto report = simulate(*plan, costs_of(2, 0, 0));
  near("interleaved", report.makespan, 2 * (8 * 2 + 4 - 1));
  for (const int64_t peak : peaks(report)) assert_int_equal(peak, 1);
}

void wrong_costs(void**) {
  const auto refused = [](const std::function<void(PipelineCosts&)>& change, const char* word) {
    PipelineCosts costs;
    change(costs);
    try {
      simulate(*plan_of("1f1b", 4, 8), costs);
    } catch (const dsc::Error& error) {
      assert_int_equal(error.code(), DSC_ERR_INVALID_ARG);
      if (!std::strstr(error.what(), word)) fail_msg("\"%s\" does not say \"%s\"", error.what(), word);
      return;
    }
    fail_msg("accepted, expected: %s", word);
  };
  refused([](auto& c) { c.forward = {1, 2}; }, "forward has 2 values, expected 1 or 4");
  refused([](auto& c) { c.forward = {}; }, "forward has 0 values");
  refused([](auto& c) { c.backward_input = {-1}; }, "backward_input[0] is -1");
  refused([](auto& c) { c.backward_weight = {1, 2, NAN, 1}; }, "backward_weight[2] is nan");
  refused([](auto& c) { c.latency = INFINITY; }, "latency is inf");
  refused([](auto& c) { c.forward = {1e308}; }, "times add up to inf");
  refused([](auto& c) { c.gradient_bytes = {1e18}, c.bucket_bytes = 1; }, "bucket_bytes is 1, expected more");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(units_of_one),
      cmocka_unit_test(other_units),
      cmocka_unit_test(profiled_times),
      cmocka_unit_test(bubbles_of_whole_backward_passes),
      cmocka_unit_test(bubbles_of_split_backward_passes),
      cmocka_unit_test(bubbles_of_v_shapes),
      cmocka_unit_test(closed_form_of_dualpipe_v),
      cmocka_unit_test(peaks_of_the_others),
      cmocka_unit_test(another_way),
      cmocka_unit_test(a_timeline_and_its_critical_path),
      cmocka_unit_test(messages_take_their_link),
      cmocka_unit_test(memory_and_reductions),
      cmocka_unit_test(a_critical_path_through_reductions),
      cmocka_unit_test(both_of_a_pair_hold_what_they_need),
      cmocka_unit_test(forward_only),
      cmocka_unit_test(wrong_costs),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
