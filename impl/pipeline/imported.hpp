// From what a text says to a plan.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pipeline/plan.hpp"

namespace dsc {

// One operation or message, on which part of the model, and where the text says so.
struct ImportedOp {
  Event event;  // its chunk is not set yet
  int32_t part = 0;
  size_t line = 0;
};

struct Imported {
  std::vector<std::vector<ImportedOp>> stages;
  std::vector<int64_t> steps;  // of each stage, with messages
  bool has_messages = false;
};

// Finds chunks, placement and number of micro-batches, and checks that the schedule can be run. Throws
// INVALID_ARG.
std::shared_ptr<const PipelinePlan> plan_of(const Imported& imported);

// Checks that a schedule can be run, by running it.
void expect_runs(const PipelinePlan& plan);

}  // namespace dsc
