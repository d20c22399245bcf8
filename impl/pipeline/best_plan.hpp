// Finds the best schedule for given costs and limits. Candidates are the named schedules, orders found by a
// greedy rule, small changes of the best one so far, and for small pipelines all possible orders.
#pragma once

#include <memory>
#include <string>

#include "pipeline/greedy_order.hpp"

namespace dsc {

// The result of a search.
struct BestPlan {
  std::shared_ptr<const PipelinePlan> plan;
  PipelineReport report;
  std::string origin;      // the schedule's name, "greedy", "repaired" or "exact"
  std::string best_named;  // the fastest named schedule; empty if none satisfies the limits
  double best_named_makespan = 0;
  double bound = 0;         // lower bound of the makespan of any order
  bool is_optimal = false;  // all orders were tried, or the makespan equals `bound`
};

// The spec provides stages, micro-batches, chunks (0 means 1), forward_only and messages. Parts are placed in
// a loop and, if there are several chunks, also in a zigzag. The lists of costs are in data-flow order of the
// parts. Throws INVALID_ARG if no order satisfies the limits, OVERFLOW if there are too many operations, and
// everything that simulate() throws.
BestPlan find_best_plan(ScheduleSpec spec, const PipelineCosts& costs, const PipelineLimits& limits);

// The result of exact_order().
struct ExactSearch {
  // The best order found; null if no order is better than `known` or the search gave up.
  std::shared_ptr<ComputeOrder> order;
  bool is_complete = false;  // every order was examined, so that no better one exists
};
// Tries all orders if there are few enough of them, and returns the best one with a makespan below `known`.
// `known` may be infinite.
ExactSearch exact_order(const PipelinePlan& shape, const PipelineCosts& costs, const PipelineLimits& limits,
                        double known);

}  // namespace dsc
