// What a rank's flight recorders hold, as text.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace dsc {

class Group;
class World;

// JSON with the field names of PyTorch's flight recorder; docs/tracing.md describes it. Waits for nobody and
// looks at nobody else's memory. `groups` are groups of this world.
std::string trace_text(const World& world, const std::vector<std::shared_ptr<Group>>& groups,
                       const std::string& reason);

// "FOLDER/dsc_trace_rank_3.json"
std::string trace_path(const std::string& folder, int rank);

}  // namespace dsc
