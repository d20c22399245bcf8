// Puts the operations of all stages, and the messages between them, into one order. Stages that each follow
// their part of it never wait for each other in a circle, even if every send waits for its receive.
#pragma once

#include <cstdint>

#include "pipeline/plan.hpp"

namespace dsc {

// Hears of everything in the common order. Neighbouring parts on one stage need no message.
class OrderListener {
 public:
  virtual ~OrderListener() = default;
  virtual void compute(int32_t stage, const Compute& op) = 0;           // also what is idle
  virtual void activation(int32_t from_part, int32_t micro_batch) = 0;  // to from_part + 1
  virtual void gradient(int32_t from_part, int32_t micro_batch) = 0;    // to from_part - 1
};

// Runs all stages at once, each in its own order, with one unit of time for a forward pass and for each half
// of a backward pass. A message moves when its receiver needs it for what it computes next and its sender is
// between two operations; gradients before activations, because they free a buffer.
// Throws INVALID_ARG, naming stage and operation, if the orders can not be run or are not complete.
void put_when_needed(const PipelinePlan& plan, OrderListener& listener);

// Goes round the stages and lets each compute one operation that has its input. A message is sent right
// after the operation that makes it, and its receive comes next on the other stage. So PyTorch 2.7 does it
// (torch/distributed/pipelining/schedules.py); instructions are the same, one by one. Throws as above.
void put_at_once(const PipelinePlan& plan, OrderListener& listener);

// Follows the plan's program, in which every message has its place. Throws INVALID_ARG, naming stage and
// step, for what is computed or sent too early, for a message without another end, and for stages that wait
// for each other in a circle if sends wait for their receives.
void put_as_given(const PipelinePlan& plan, OrderListener& listener);

// One of the three, as the plan says.
void put_in_order(const PipelinePlan& plan, OrderListener& listener);

}  // namespace dsc
