// The best order for given costs: it is never worse than a named schedule, respects the limits, and is
// optimal for small pipelines.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "base/error.hpp"
#include "pipeline/best_plan.hpp"
#include "pipeline/catalog.hpp"
#include "pipeline/imported.hpp"
#include "repetitions.h"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using dsc::PipelineCosts;
using dsc::PipelineLimits;

PipelineCosts costs_of(double forward, double input, double weight, double latency = 0) {
  PipelineCosts costs;
  costs.forward = {forward};
  costs.backward_input = {input};
  costs.backward_weight = {weight};
  costs.latency = latency;
  return costs;
}

dsc::BestPlan best(int32_t stages, int32_t micro_batches, int32_t chunks, const PipelineCosts& costs,
                   const PipelineLimits& limits = {}) {
  return dsc::find_best_plan({.name = "", .stages = stages, .micro_batches = micro_batches, .chunks = chunks},
                             costs, limits);
}

int64_t peak(const dsc::PipelineReport& report) {
  int64_t most = 0;
  for (const auto& stage : report.stages) most = std::max(most, stage.peak_activations);
  return most;
}

void never_worse_than_a_name(void**) {
  std::mt19937 random(3);
  const auto draw = [&](int32_t least, int32_t most) {
    return least + static_cast<int32_t>(random() % static_cast<uint32_t>(most - least + 1));
  };
  int better = 0;
  const int cases = test_repetitions(60, 10);
  for (int i = 0; i < cases; ++i) {
    const int32_t p = draw(1, 5), m = draw(1, 10), v = draw(1, 2);
    PipelineCosts costs = costs_of(1, 1, 1, draw(0, 2));
    for (auto* list : {&costs.forward, &costs.backward_input, &costs.backward_weight}) {
      list->clear();
      for (int32_t part = 0; part < p * v; ++part) list->push_back(draw(1, 9));
    }
    const auto found = best(p, m, v, costs);
    assert_true(found.report.makespan >= found.bound * (1 - 1e-12));
    for (const char* name :
         {"gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min"}) {
      double named = 0;
      try {
        named = simulate(*dsc::make_plan({.name = name, .stages = p, .micro_batches = m, .chunks = v}), costs)
                    .makespan;
      } catch (const dsc::Error&) {
        continue;
      }
      if (found.report.makespan > named)
        fail_msg("%d x %d x %d: %g, but %s takes %g", p, m, v, found.report.makespan, name, named);
    }
    better += found.report.makespan < found.best_named_makespan;
    dsc::expect_runs(*found.plan);
  }
  assert_true(better > cases / 3);
}

void limits_are_kept(void**) {
  std::mt19937 random(4);
  const int cases = test_repetitions(40, 8);
  for (int i = 0; i < cases; ++i) {
    const int32_t p = 2 + static_cast<int32_t>(random() % 4), m = p + static_cast<int32_t>(random() % 8);
    const auto limit = static_cast<int64_t>(1 + random() % static_cast<uint32_t>(2 * p));
    const auto found = best(p, m, 1, costs_of(2, 2, 1), {.activations = limit});
    assert_true(peak(found.report) <= limit);
    PipelineCosts costs = costs_of(1, 1, 1);
    costs.activation_bytes = {10};
    costs.static_bytes = {100};
    const auto by_bytes = best(p, m, 2, costs, {.bytes = 100.0 * 2 + 10.0 * static_cast<double>(limit + 1)});
    for (const auto& stage : by_bytes.report.stages)
      assert_true(stage.peak_bytes <= 200 + 10.0 * static_cast<double>(limit + 1));
  }
}

// Zero bubble is impossible with the memory of 1F1B, but possible with twice that memory.
void known_results(void**) {
  const auto small = best(4, 12, 1, costs_of(1, 1, 1), {.activations = 4});
  assert_true(small.report.makespan <= 3 * 12 + 3);
  const auto large = best(4, 12, 1, costs_of(1, 1, 1), {.activations = 8});
  assert_true(large.report.makespan <= 3 * 12 + 3);
  const auto one = best(1, 5, 1, costs_of(1, 2, 3));
  assert_true(one.report.makespan == 30 && one.is_optimal);
}

// Passes that overlap take less time than their sum. Even then no order is better than the bound.
void pairs_keep_to_the_bound(void**) {
  for (const double overlap : {1.2, 1.0, 0.9, 0.6, 0.3, 0.0}) {
    PipelineCosts costs = costs_of(1, 1, 1);
    costs.overlap = overlap;
    const auto found = best(2, 8, 2, costs);
    assert_true(found.bound <= found.report.makespan * (1 + 1e-12));
    assert_true(!found.is_optimal || overlap >= 1);
  }
}

// A result that equals the bound ends the search. A longer search would have found nothing better.
void a_met_bound_is_the_answer(void**) {
  const auto found = best(64, 500, 1, costs_of(1, 1, 1));
  assert_true(found.report.makespan == 3 * 500 + 63 && found.bound == found.report.makespan);
  assert_true(found.is_optimal && found.best_named == "zb_h1" && found.origin == "zb_h1");
}

// Tries all orders of two stages: none is better than the found one.
void small_ones_are_optimal(void**) {
  std::mt19937 random(5);
  const int cases = test_repetitions(12, 4);
  for (int i = 0; i < cases; ++i) {
    PipelineCosts costs = costs_of(1, 1, 1, static_cast<double>(random() % 3));
    for (auto* list : {&costs.forward, &costs.backward_input, &costs.backward_weight})
      *list = {static_cast<double>(1 + random() % 5), static_cast<double>(1 + random() % 5)};
    const PipelineLimits limits{.activations = static_cast<int64_t>(random() % 3)};
    const auto found = best(2, 3, 1, costs, limits);
    assert_true(found.is_optimal);
    const dsc::PipelinePlan shape({.name = "all", .stages = 2, .micro_batches = 3, .chunks = 1}, nullptr,
                                  dsc::PlacementShape::kLoop);
    const auto all = exact_order(shape, costs, limits, 1e9);  // searched without a known bound
    assert_true(all.is_complete && all.order);
    auto plan = shape;
    plan.order = all.order;
    const double exact = simulate(plan, costs).makespan;
    if (exact != found.report.makespan) fail_msg("found %g, the best is %g", found.report.makespan, exact);
  }
}

void what_is_impossible(void**) {
  try {
    PipelineCosts costs = costs_of(1, 1, 1);
    costs.static_bytes = {100};
    best(2, 4, 1, costs, {.bytes = 50});
  } catch (const dsc::Error& error) {
    assert_int_equal(error.code(), DSC_ERR_INVALID_ARG);
    assert_non_null(std::strstr(error.what(), "no schedule satisfies"));
    assert_non_null(
        std::strstr(error.what(), "a stage has 100 bytes of costs->static_bytes, expected at most 50"));
    return;
  }
  fail_msg("an order was found");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(never_worse_than_a_name), cmocka_unit_test(limits_are_kept),
      cmocka_unit_test(known_results),           cmocka_unit_test(small_ones_are_optimal),
      cmocka_unit_test(pairs_keep_to_the_bound), cmocka_unit_test(a_met_bound_is_the_answer),
      cmocka_unit_test(what_is_impossible),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
