// Turns the operations read from a text into a plan.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pipeline/plan.hpp"

namespace dsc {

// One operation or message, with its part of the model and its position in the text.
struct ImportedOp {
  Event event;  // its chunk is set later, by plan_of()
  int32_t part = 0;
  size_t line = 0;
};

// The content of a text, by stage.
struct Imported {
  std::vector<std::vector<ImportedOp>> stages;
  std::vector<int64_t> steps;  // number of steps of each stage; set for texts with messages
  bool has_messages = false;
};

// Determines the numbers of chunks and micro-batches and the placement. Checks that the schedule can be run.
// Throws INVALID_ARG.
std::shared_ptr<const PipelinePlan> plan_of(const Imported& imported);

// Checks that a schedule can be run, by a simulation without costs.
void expect_runs(const PipelinePlan& plan);

}  // namespace dsc
