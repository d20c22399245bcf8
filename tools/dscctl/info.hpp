// What the library is, what it can use, and what this host offers.
#pragma once

#include <nlohmann/json.hpp>

namespace dscctl {

using Json = nlohmann::ordered_json;

Json collect_info();

// The same facts for people, one per line.
std::string format_info(const Json& info);

}  // namespace dscctl
