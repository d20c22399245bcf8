// What start-up finds in this environment, and what it would do.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dscctl {

using Json = nlohmann::ordered_json;

Json collect_launch();

// The same for people: one line per source and per variable that is set, then what init would do.
std::string format_launch(const Json& launch);

}  // namespace dscctl
