// The contents of a rank's flight recorders as text.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace dsc {

class Group;
class World;

// Returns JSON with the field names of PyTorch's flight recorder, which docs/tracing.md describes. It neither
// waits nor reads memory of other ranks. `groups` must be groups of this world.
std::string trace_text(const World& world, const std::vector<std::shared_ptr<Group>>& groups,
                       const std::string& reason);

// Returns a path such as "FOLDER/dsc_trace_rank_3.json".
std::string trace_path(const std::string& folder, int rank);

}  // namespace dsc
