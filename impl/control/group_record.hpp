// What a trace shows of a group, also after the group has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "control/recorder.hpp"

namespace dsc {

// A larger communicator to which this host's group belongs: one over several hosts, or the one for operations
// on devices.
struct WholeGroup {
  uint64_t id = 0;
  std::string name;
  std::vector<int32_t> global_ranks;  // empty if there is no such communicator
  std::vector<int32_t> members = {};  // between hosts: rank there of each member of this group
};

struct GroupRecord {
  WholeGroup
      host;  // the group that runs these operations on host memory: this one, or one over several hosts
  WholeGroup devices;  // the group that runs these operations on devices
  std::shared_ptr<const Recorder> recorder;
};

}  // namespace dsc
