// The operations that a schedule contains. They determine which callbacks and tensors a run needs.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "pipeline/ir.hpp"

namespace dsc {

class PipeNeeds {
 public:
  // Iterates over the whole schedule once and resets it.
  explicit PipeNeeds(Schedule& schedule);

  // Returns the first instruction with this operation, or nothing if the schedule does not contain it.
  const std::optional<Instruction>& first(PipeOp op) const noexcept {
    return first_[static_cast<size_t>(op)];
  }
  bool has(PipeOp op) const noexcept { return first(op).has_value(); }

 private:
  std::array<std::optional<Instruction>, static_cast<size_t>(PipeOp::kOverlap) + 1> first_;
};

bool is_message(PipeOp op) noexcept;

// Returns a text such as "forward of micro-batch 3 in step 7".
std::string describe(const Instruction& instruction);

}  // namespace dsc
