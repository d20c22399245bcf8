// Reports what start-up finds in this environment, and what dsc_init() would do.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dscctl {

using Json = nlohmann::ordered_json;

Json collect_launch();

// Returns the same as text: one line per source and per variable that is set, and then what dsc_init() would
// do.
std::string format_launch(const Json& launch);

}  // namespace dscctl
