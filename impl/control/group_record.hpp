// The part of a group that appears in a trace. It outlives the group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "control/recorder.hpp"

namespace dsc {

// A larger communicator to which this host's group belongs: a communicator over several hosts, or the
// communicator for operations on devices.
struct WholeGroup {
  uint64_t id = 0;
  std::string name;
  std::vector<int32_t> global_ranks;  // empty if there is no such communicator
  // For several hosts: the rank in this communicator of each member of the host's group.
  std::vector<int32_t> members = {};
};

struct GroupRecord {
  WholeGroup host;     // the communicator for operations on host memory: this group or one over several hosts
  WholeGroup devices;  // the communicator for operations on devices
  std::shared_ptr<const Recorder> recorder;
};

}  // namespace dsc
