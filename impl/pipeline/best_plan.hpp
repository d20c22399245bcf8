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
  std::string best_named;  // empty if no named schedule satisfies the limits
  double best_named_makespan = 0;
  double bound = 0;         // lower bound of the makespan of any order
  bool is_optimal = false;  // all orders were tried, or the makespan equals the bound
};

// The spec provides stages, micro-batches, chunks (0: 1), forward_only and messages. Orders are tried with
// parts placed in a loop and, with several chunks, also in a zigzag; parts and their costs are in data-flow
// order. Throws INVALID_ARG if no order satisfies the limits, what simulate() throws, and OVERFLOW if there
// are too many operations.
BestPlan find_best_plan(ScheduleSpec spec, const PipelineCosts& costs, const PipelineLimits& limits);

// Searches all orders if there are few enough of them. Only orders with a makespan below `known` count; it
// may be infinite.
struct ExactSearch {
  // better than `known`; null if there is none or the search was given up
  std::shared_ptr<ComputeOrder> order;
  bool is_complete = false;  // all orders were examined
};
ExactSearch exact_order(const PipelinePlan& shape, const PipelineCosts& costs, const PipelineLimits& limits,
                        double known);

}  // namespace dsc
