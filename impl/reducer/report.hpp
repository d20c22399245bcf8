// What a reducer reports about itself, under the names of PyTorch's DDP logging data.
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
  const BucketLayout* layout;        // of the next iteration
  size_t bucket_bytes = 0;
  size_t first_bucket_bytes = 0;
  bool find_unused = false;
  bool static_graph = false;
  bool joined = false;
  bool has_buffers = false;
  uint64_t iterations = 0;  // that were reduced
  uint64_t rebuilds = 0;
  std::string hook;  // empty: none
  std::vector<size_t> ready_order;
  std::vector<size_t> unused;  // by this rank
  std::vector<size_t> unused_everywhere;
  IterationTimes times;  // of the latest iteration
  PhaseSampler phases;
  std::string failure;
};

// Returns a JSON object.
std::string to_json(const ReducerReport& report);

// Returns a picture of one iteration as SVG: when each gradient was ready, when each bucket was reduced, and
// which part of that no computation hid.
std::string to_svg(const ReducerReport& report);

}  // namespace dsc
