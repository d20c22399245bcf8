// What a schedule costs: every stage runs its operations in order, each as soon as it has its input.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/plan.hpp"

namespace dsc {

// Times in one unit of the caller's choice. A list holds one value for all parts of the model, or one for
// each in the order in which data flows through them.
struct PipelineCosts {
  std::vector<double> forward{1};
  std::vector<double> backward_input{1};
  std::vector<double> backward_weight{1};
  double overlap = 1;  // what a forward and a backward pass at once take, as a part of their sum

  double latency = 0;                    // of a message between two stages
  double bytes_per_time = 0;             // of a link between two stages, per direction; 0: without end
  std::vector<double> message_bytes{0};  // what a part gives to the next one, and takes back as gradients

  std::vector<double> activation_bytes{0};  // held for a micro-batch from its forward to its backward pass
  std::vector<double> static_bytes{0};      // weights, their gradients, the optimizer's state

  // Data-parallel reduction of a part's gradients, overlapped with what is still computed.
  std::vector<double> gradient_bytes{0};
  double bucket_bytes = 0;           // 0: one bucket for each part
  double reduce_latency = 0;         // of an all-reduce
  double reduce_bytes_per_time = 0;  // 0: without end
};

// A value for a part from a list that may hold one for all.
inline double of_part(const std::vector<double>& list, int32_t part) {
  return list.size() == 1 ? list[0] : list[static_cast<size_t>(part)];
}

struct PipelineSpan {
  int32_t stage = 0;
  Compute op;
  double start = 0;
  double end = 0;
};

struct StageReport {
  double busy = 0;
  double start = 0;              // of its first operation
  double end = 0;                // of its last one
  double reduced = 0;            // end of its last all-reduce of gradients; 0: there was none
  int64_t peak_activations = 0;  // micro-batches times chunks that it holds at once
  double peak_bytes = 0;
};

struct PipelineReport {
  double makespan = 0;  // all-reduces included
  std::vector<StageReport> stages;
  std::vector<std::vector<PipelineSpan>> timeline;  // of each stage, if asked for
  std::vector<PipelineSpan> critical_path;          // from first to last, if asked for
};

struct SimulationWishes {
  bool timeline = false;
  bool critical_path = false;
};

// Throws INVALID_ARG for costs that are negative, not finite or of a wrong number, and for orders that can
// not be run; OVERFLOW. Memory: 16 bytes per part and micro-batch, and 40 per operation for a timeline or a
// critical path.
PipelineReport simulate(const PipelinePlan& plan, const PipelineCosts& costs,
                        const SimulationWishes& wishes = {});

}  // namespace dsc
