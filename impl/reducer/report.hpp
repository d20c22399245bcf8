// The report of a reducer about itself. Fields have the names of PyTorch's DDP logging data.
#pragma once

#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "gradients/param_list.hpp"
#include "reducer/bucket_layout.hpp"
#include "reducer/phase_times.hpp"
#include "reducer/timeline.hpp"

namespace dsc {

struct ReducerReport {
  const Comm* group;
  const ParamList* params;
  const BucketLayout* first_layout;  // as planned at creation
  const BucketLayout* layout;        // layout of the next iteration
  size_t bucket_bytes = 0;
  size_t first_bucket_bytes = 0;
  bool find_unused = false;
  bool static_graph = false;
  bool joined = false;
  bool has_buffers = false;
  uint64_t iterations = 0;  // number of reduced iterations
  uint64_t rebuilds = 0;
  std::string hook;  // name of the hook; may be empty
  std::vector<size_t> ready_order;
  std::vector<size_t> unused;  // parameters that this rank did not use
  std::vector<size_t> unused_everywhere;
  IterationTimes times;  // times of the latest iteration
  PhaseSampler phases;
  std::string failure;
};

// Returns a JSON object.
std::string to_json(const ReducerReport& report);

// Returns a picture of one iteration as SVG. It shows when each gradient became ready, when each bucket was
// reduced, and which part of this time did not overlap with computation.
std::string to_svg(const ReducerReport& report);

}  // namespace dsc
