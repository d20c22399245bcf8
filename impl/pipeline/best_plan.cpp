#include "pipeline/best_plan.hpp"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "pipeline/catalog.hpp"
#include "pipeline/imported.hpp"

namespace dsc {
namespace {

// Limits on the number of operations of all stages together. find_best_plan() rejects schedules above the
// first limit. Above the second one, repair() does nothing.
constexpr int64_t kMostOperations = 200'000;
constexpr int64_t kMostRepaired = 1'500;
constexpr int kRepairs = 400;

bool keeps_to(const PipelineReport& report, const PipelineLimits& limits) {
  return std::ranges::all_of(report.stages, [&](const StageReport& stage) {
    return (limits.activations <= 0 || stage.peak_activations <= limits.activations) &&
           (limits.bytes <= 0 || stage.peak_bytes <= limits.bytes);
  });
}

// Returns a lower bound of the makespan. A stage has to run all of its operations, and it can only start
// after the forward passes of the parts that precede its first part.
double bound_of(const PipelinePlan& shape, const PipelineCosts& costs) {
  double bound = 0;
  const Placement& placement = shape.placement;
  for (int32_t stage = 0; stage < placement.stages(); ++stage) {
    double busy = 0;
    double before = std::numeric_limits<double>::infinity(), sum = 0;
    for (int32_t part = 0; part < placement.parts(); ++part) {
      if (placement.stage(part) == stage) {
        before = std::min(before, sum);
        busy += of_part(costs.forward, part);
        if (!shape.spec.forward_only)
          busy += of_part(costs.backward_input, part) + of_part(costs.backward_weight, part);
      }
      sum += of_part(costs.forward, part);
    }
    bound = std::max(bound, before + busy * shape.spec.micro_batches);
  }
  return bound * std::min(1.0, costs.overlap);  // overlapped operations take less time
}

// Collects candidates and keeps the best one.
class Finder {
 public:
  Finder(ScheduleSpec spec, const PipelineCosts& costs, const PipelineLimits& limits)
      : spec_(std::move(spec)), costs_(costs), limits_(limits) {}

  // Stops as soon as a candidate reaches the lower bound, because no candidate can be better.
  BestPlan find() {
    for (const PlacementShape shape : shapes())
      bound_ = std::min(bound_, bound_of(PipelinePlan(spec_, nullptr, shape), costs_));
    for (const char* name : {"gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1", "zb_h2", "zb_v",
                             "v_half", "v_min", "dualpipe_v"})
      if (!meets_bound()) consider_named(name);
    for (const PlacementShape shape : shapes())
      if (!meets_bound()) consider_orders(shape);
    if (!best_.plan) expect_room_for_static_bytes();
    if (!best_.plan)
      fail(DSC_ERR_INVALID_ARG,
           "no schedule satisfies the limits of each stage: search->activations is %lld and search->bytes is "
           "%g (0: no limit)",
           static_cast<long long>(limits_.activations), limits_.bytes);
    best_.bound = bound_;
    best_.is_optimal = best_.is_optimal || meets_bound();
    return std::move(best_);
  }

 private:
  // Fails early if the static bytes (weights, gradients, optimizer state) of a stage exceed its limit. Every
  // order needs these bytes.
  void expect_room_for_static_bytes() const {
    // For each placement, find the stage with the most static bytes. The smallest of these values over all
    // placements is the least that any order needs.
    double least = std::numeric_limits<double>::infinity();
    for (const PlacementShape shape : shapes()) {
      const PipelinePlan plan(spec_, nullptr, shape);
      std::vector<double> bytes(static_cast<size_t>(spec_.stages));
      for (int32_t part = 0; part < plan.placement.parts(); ++part)
        bytes[static_cast<size_t>(plan.placement.stage(part))] += of_part(costs_.static_bytes, part);
      least = std::min(least, std::ranges::max(bytes));
    }
    if (limits_.bytes > 0 && least > limits_.bytes)
      fail(DSC_ERR_INVALID_ARG,
           "no schedule satisfies search->bytes: a stage has %g bytes of costs->static_bytes, expected at "
           "most %g",
           least, limits_.bytes);
  }
  std::vector<PlacementShape> shapes() const {
    if (spec_.chunks == 1) return {PlacementShape::kLoop};
    return {PlacementShape::kLoop, PlacementShape::kZigZag};
  }
  bool meets_bound() const { return best_.plan && best_.report.makespan <= bound_ * (1 + 1e-12); }

  // Returns true if the plan is the best so far.
  bool consider(std::shared_ptr<const PipelinePlan> plan, const char* origin) {
    PipelineReport report = simulate(*plan, costs_);
    if (!keeps_to(report, limits_)) return false;
    if (best_.plan && report.makespan >= best_.report.makespan) return false;
    best_.plan = std::move(plan);
    best_.report = std::move(report);
    best_.origin = origin;
    return true;
  }

  // Skips the named schedule if it does not support these numbers of stages, micro-batches and chunks.
  void consider_named(const char* name) {
    ScheduleSpec spec = spec_;
    spec.name = name;
    std::shared_ptr<const PipelinePlan> plan;
    capture([&] { plan = make_plan(spec); }, [](dsc_result_t, const char*) {});
    if (!plan || !consider(plan, name)) return;
    best_.best_named = name;
    best_.best_named_makespan = best_.report.makespan;
  }

  void consider_orders(PlacementShape placement) {
    const PipelinePlan shape(spec_, nullptr, placement);
    for (const GreedyRules& rules : all_rules()) {
      if (meets_bound()) return;
      if (auto order = greedy_order(shape, costs_, limits_, rules))
        consider(plan_of(placement, std::move(order)), "greedy");
    }
    if (best_.plan && best_.plan->placement.shape() == placement) repair(placement);
    if (meets_bound()) return;
    const double known = best_.plan ? best_.report.makespan : std::numeric_limits<double>::infinity();
    const ExactSearch exact = exact_order(shape, costs_, limits_, known);
    if (exact.order) consider(plan_of(placement, exact.order), "exact");
    n_exact_ += exact.is_complete ? 1 : 0;
    // The search does not try overlapping pairs. If they save time, a better order may exist.
    best_.is_optimal = n_exact_ == (spec_.chunks > 1 ? 2 : 1) && costs_.overlap >= 1;
  }

  std::shared_ptr<const PipelinePlan> plan_of(PlacementShape placement, std::shared_ptr<ComputeOrder> order) {
    ScheduleSpec spec = spec_;
    spec.name = "auto";
    auto plan = std::make_shared<PipelinePlan>(spec, std::move(order), placement);
    plan->is_custom = true;
    return plan;
  }

  std::vector<GreedyRules> all_rules() const {
    std::vector<GreedyRules> all;
    const int64_t p = spec_.stages, v = spec_.chunks;
    for (const bool forward_first : {false, true})
      for (const bool deep_first : {true, false})
        for (const double wait_fraction : {0.0, 0.5, 1.0})
          for (const auto& [most, fewer] :
               {std::pair<int64_t, int64_t>{0, 0}, {p * v, 1}, {p * v, 0}, {2 * p * v - 1, 2}})
            all.push_back({forward_first, deep_first, wait_fraction, most, fewer});
    return all;
  }

  // Swaps neighboring operations of a stage at random, and keeps each change that does not make the makespan
  // longer.
  void repair(PlacementShape placement) {
    const PipelinePlan& plan = *best_.plan;
    std::vector<StageOrder> orders(static_cast<size_t>(spec_.stages));
    int64_t total = 0;
    for (int32_t stage = 0; stage < spec_.stages; ++stage)
      for (int64_t k = 0; k < plan.order->size(stage); ++k, ++total)
        orders[static_cast<size_t>(stage)].push_back(plan.order->at(stage, k));
    if (total > kMostRepaired) return;
    std::mt19937 random(1);  // fixed seed, so that the result is reproducible
    double makespan = best_.report.makespan;
    for (int i = 0; i < kRepairs; ++i) {
      StageOrder& order = orders[random() % orders.size()];
      if (order.size() < 2) continue;
      const size_t k = random() % (order.size() - 1);
      if (order[k].overlaps || order[k + 1].overlaps || (k > 0 && order[k - 1].overlaps)) continue;
      std::swap(order[k], order[k + 1]);
      const double changed = makespan_of(placement, orders);
      if (changed <= makespan)
        makespan = changed;
      else
        std::swap(order[k], order[k + 1]);
    }
    if (makespan < best_.report.makespan)
      consider(plan_of(placement, std::make_shared<ListedOrder>(orders)), "repaired");
  }

  // Returns infinity if the orders cannot be run within the limits.
  double makespan_of(PlacementShape placement, const std::vector<StageOrder>& orders) {
    double makespan = std::numeric_limits<double>::infinity();
    capture(
        [&] {
          const auto report = simulate(*plan_of(placement, std::make_shared<ListedOrder>(orders)), costs_);
          if (keeps_to(report, limits_)) makespan = report.makespan;
        },
        [](dsc_result_t, const char*) {});
    return makespan;
  }

  const ScheduleSpec spec_;
  const PipelineCosts& costs_;
  const PipelineLimits limits_;
  BestPlan best_;
  double bound_ = std::numeric_limits<double>::infinity();
  int n_exact_ = 0;
};

}  // namespace

BestPlan find_best_plan(ScheduleSpec spec, const PipelineCosts& costs, const PipelineLimits& limits) {
  complete_custom(spec);
  const int64_t operations = int64_t{spec.stages} * spec.chunks * spec.micro_batches * 3;
  if (operations > kMostOperations)
    fail(DSC_ERR_OVERFLOW, "%d stages x %d chunks x %d micro-batches, expected a product of at most %lld",
         spec.stages, spec.chunks, spec.micro_batches, static_cast<long long>(kMostOperations / 3));
  return Finder(std::move(spec), costs, limits).find();
}

}  // namespace dsc
