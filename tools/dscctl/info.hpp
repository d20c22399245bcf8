// Reports the library's version and features, what it finds on this host, and what the host offers.
#pragma once

#include <nlohmann/json.hpp>

namespace dscctl {

using Json = nlohmann::ordered_json;

Json collect_info();

// Returns the same facts as text, one per line.
std::string format_info(const Json& info);

}  // namespace dscctl
