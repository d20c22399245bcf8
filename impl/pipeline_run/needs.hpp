// What a schedule asks of whoever runs it.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "pipeline/ir.hpp"

namespace dsc {

class PipeNeeds {
 public:
  // Walks through the whole schedule.
  explicit PipeNeeds(Schedule& schedule);

  // The first instruction with this op.
  const std::optional<Instruction>& first(PipeOp op) const noexcept {
    return first_[static_cast<size_t>(op)];
  }
  bool has(PipeOp op) const noexcept { return first(op).has_value(); }

 private:
  std::array<std::optional<Instruction>, static_cast<size_t>(PipeOp::kOverlap) + 1> first_;
};

bool is_message(PipeOp op) noexcept;

// "forward of micro-batch 3 in step 7"
std::string describe(const Instruction& instruction);

}  // namespace dsc
