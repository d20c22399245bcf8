// Converts the contents of a rank's flight recorders to text.
#pragma once

#include <string>
#include <vector>

#include "control/group_record.hpp"

namespace dsc {

class HostGroup;

// Returns JSON with the field names of PyTorch's flight recorder, as described in docs/tracing.md. Neither
// waits for other ranks nor reads their memory. `groups` must belong to this world.
std::string trace_text(const HostGroup& host, const std::vector<GroupRecord>& groups,
                       const std::string& reason);

// Returns a path such as "FOLDER/dsc_trace_rank_3.json".
std::string trace_path(const std::string& folder, int rank);

}  // namespace dsc
