// Runs the instruction lists of all stages of a pipeline together, as blocking sends and receives would. Also
// follows the buffers of one list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/ir.hpp"
#include "pipeline/placement.hpp"

using List = std::vector<dsc::Instruction>;

// Returns the remaining instructions of a schedule.
List rest_of(dsc::Schedule& schedule);

// Units of time. Messages, loads and the end of a batch take no time.
struct Costs {
  int64_t forward = 1;
  int64_t backward_input = 1;
  int64_t backward_weight = 1;
};

struct Outcome {
  std::string problem;  // empty if every list was completed and every operation had its input
  int64_t makespan = 0;
};

// Every send waits until its receiver reaches the matching receive, and every receive waits for its send.
Outcome run_rendezvous(const std::vector<List>& lists, const dsc::Placement& placement, int32_t micro_batches,
                       const Costs& costs = {});

struct BufferUse {
  std::string problem;  // empty if no buffer was reused before its first micro-batch was complete
  int32_t peak = 0;     // the largest number of buffers in use at the same time
};

BufferUse follow_buffers(const List& list, int32_t stage, const dsc::Placement& placement, bool is_training);

std::string to_text(const dsc::Instruction& instruction);
