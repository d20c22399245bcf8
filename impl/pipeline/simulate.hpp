// Simulates the cost of a schedule. Every stage runs its operations in order, and each operation starts as
// soon as its input is available.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/plan.hpp"

namespace dsc {

// All times have the same unit, which the caller chooses. A list holds either one value for all parts of the
// model, or one value per part in data-flow order.
struct PipelineCosts {
  std::vector<double> forward{1};
  std::vector<double> backward_input{1};
  std::vector<double> backward_weight{1};
  double overlap = 1;  // time of two overlapped passes, divided by the sum of their separate times

  double latency = 0;  // time that every message between two stages takes in addition to its transfer
  // Bandwidth of a link between two stages in each direction; 0 means unlimited.
  double bytes_per_time = 0;
  std::vector<double> message_bytes{0};  // size of a part's output, and also of the gradient of that output

  // Memory held per micro-batch from its forward to its backward pass.
  std::vector<double> activation_bytes{0};
  std::vector<double> static_bytes{0};  // weights, their gradients, and the optimizer's state

  // Data-parallel reduction of a part's gradients, which overlaps with the remaining computation.
  std::vector<double> gradient_bytes{0};
  double bucket_bytes = 0;           // 0 means one bucket per part
  double reduce_latency = 0;         // time that every all-reduce takes in addition to its transfer
  double reduce_bytes_per_time = 0;  // 0 means unlimited
};

// Returns the value for a part. The list holds one value per part, or a single value for all parts.
inline double of_part(const std::vector<double>& list, int32_t part) {
  return list.size() == 1 ? list[0] : list[static_cast<size_t>(part)];
}

// An operation with its start and end time.
struct PipelineSpan {
  int32_t stage = 0;
  Compute op;
  double start = 0;
  double end = 0;
};

// Results of one stage.
struct StageReport {
  double busy = 0;
  double start = 0;              // start of its first operation
  double end = 0;                // end of its last operation
  double reduced = 0;            // end of its last all-reduce of gradients; 0 if there was none
  int64_t peak_activations = 0;  // largest number of micro-batches times chunks held at the same time
  double peak_bytes = 0;
};

// Results of a simulation.
struct PipelineReport {
  double makespan = 0;  // end of the last operation or all-reduce
  std::vector<StageReport> stages;
  std::vector<std::vector<PipelineSpan>> timeline;  // by stage, if requested
  std::vector<PipelineSpan> critical_path;          // in order of time, if requested
};

// The optional parts of a report that the caller requests.
struct SimulationWishes {
  bool timeline = false;
  bool critical_path = false;
};

// Throws INVALID_ARG if a cost is negative or not finite, if a list of costs has the wrong length, or if the
// orders cannot be run. Throws OVERFLOW if there are too many operations. The simulation takes 16 bytes per
// part and micro-batch, and 40 bytes per operation if a timeline or critical path is requested.
PipelineReport simulate(const PipelinePlan& plan, const PipelineCosts& costs,
                        const SimulationWishes& wishes = {});

}  // namespace dsc
