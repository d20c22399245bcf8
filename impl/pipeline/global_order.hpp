// Merges the operations of all stages, and the messages between them, into one common order. If every stage
// follows its share of this order, no deadlock can occur, even if every send blocks until its receive.
#pragma once

#include <cstdint>

#include "pipeline/plan.hpp"

namespace dsc {

// Called for each operation and message of the common order. If two neighboring parts are on the same stage,
// no message is reported between them.
class OrderListener {
 public:
  virtual ~OrderListener() = default;
  virtual void compute(int32_t stage, const Compute& op) = 0;           // also called for idle steps
  virtual void activation(int32_t from_part, int32_t micro_batch) = 0;  // sent to from_part + 1
  virtual void gradient(int32_t from_part, int32_t micro_batch) = 0;    // sent to from_part - 1
};

// Simulates all stages in parallel, each in its own order. A forward pass and each half of a backward pass
// take one unit of time. A message moves when its receiver needs it for its next operation and its sender is
// between two operations. Gradients are sent before activations, because a sent gradient frees a buffer.
// Throws INVALID_ARG, with stage and operation, if the orders cannot be run or are incomplete.
void put_when_needed(const PipelinePlan& plan, OrderListener& listener);

// Visits the stages in turn and lets each run one operation whose input is available. A message is sent right
// after the operation that produces it, and the other stage receives it as its next action. The instructions
// are identical to those of PyTorch 2.7 (torch/distributed/pipelining/schedules.py). Throws like
// put_when_needed().
void put_at_once(const PipelinePlan& plan, OrderListener& listener);

// Follows the plan's program, which contains the position of every message. Throws INVALID_ARG, with stage
// and step, in three cases: an operation or message comes too early, a send or receive has no counterpart, or
// the stages would deadlock if sends block until their receives.
void put_as_given(const PipelinePlan& plan, OrderListener& listener);

// Calls one of the three functions above, as the plan requires.
void put_in_order(const PipelinePlan& plan, OrderListener& listener);

}  // namespace dsc
