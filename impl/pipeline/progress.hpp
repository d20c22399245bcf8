// Tracks what has been computed of a batch, and checks whether a stage may run an operation next.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/plan.hpp"

namespace dsc {

// Returns a text such as "forward of micro-batch 3 in chunk 0".
std::string describe(const Compute& op);

// Tracks one batch through the whole pipeline.
class Progress {
 public:
  explicit Progress(const PipelinePlan& plan);

  // Throws INVALID_ARG, with stage and operation, if the stage cannot run `op` now as its operation number k.
  void check(int32_t stage, int64_t k, const Compute& op) const;
  void note(int32_t stage, const Compute& op);
  // Checks an operation that overlaps with the next one. `second` is null if the order ends after `first`.
  void check_pair(int32_t stage, int64_t k, const Compute& first, const Compute* second) const;

  bool has(const Source& source, int32_t micro_batch) const {
    return (source.is_gradient ? input_half_ : forward_)[index(source.part, micro_batch)];
  }

  // Throws INVALID_ARG, with the missing operation, if the stage has not run all operations.
  void expect_complete(int32_t stage) const;

 private:
  size_t index(int32_t part, int32_t micro_batch) const {
    return static_cast<size_t>(part) * static_cast<size_t>(micro_batches_) + static_cast<size_t>(micro_batch);
  }
  // Returns what is invalid about the operation, or an empty text if it is valid.
  std::string problem(int32_t stage, const Compute& op) const;

  const Placement placement_;
  const int32_t micro_batches_;
  const bool forward_only_;
  std::vector<bool> forward_, input_half_, weight_half_;  // what is done, by part and micro-batch
  // Work done by each stage, in passes and halves of passes.
  std::vector<int64_t> work_;
};

// A stage that cannot continue.
struct Stuck {
  int32_t stage;
  int64_t k;
  Compute op;
  int32_t waits_for;  // the stage that has to produce the missing input
};

// Throws INVALID_ARG for the first stuck stage. If stages wait for each other in a cycle, the message shows
// it.
[[noreturn]] void refuse_stuck(const std::vector<Stuck>& stuck);

}  // namespace dsc
