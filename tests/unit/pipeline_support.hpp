// Runs the lists of all stages of a pipeline against each other, as blocking sends and receives would, and
// follows the buffers of one list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/ir.hpp"
#include "pipeline/placement.hpp"

using List = std::vector<dsc::Instruction>;

// What is left of a schedule.
List rest_of(dsc::Schedule& schedule);

// Units of time; messages, loads and the end of a batch take none.
struct Costs {
  int64_t forward = 1;
  int64_t backward_input = 1;
  int64_t backward_weight = 1;
};

struct Outcome {
  std::string problem;  // empty when all lists came to their end and every operation had its input
  int64_t makespan = 0;
};

// Every send waits until its receiver is at the receive that belongs to it, and the other way round.
Outcome run_rendezvous(const std::vector<List>& lists, const dsc::Placement& placement, int32_t micro_batches,
                       const Costs& costs = {});

struct BufferUse {
  std::string problem;  // empty when no buffer was used for a second micro-batch before the first was through
  int32_t peak = 0;     // most buffers in use at once
};

BufferUse follow_buffers(const List& list, int32_t stage, const dsc::Placement& placement, bool is_training);

std::string to_text(const dsc::Instruction& instruction);
