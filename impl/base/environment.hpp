// Reads environment variables through a function, so that tests can pass their own values. This file never
// modifies the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace dsc {

// Returns the value of a variable, or nullopt if it is unset or empty. An empty variable counts as unset,
// because some launchers set variables to empty text.
using Environment = std::function<std::optional<std::string>(const char* name)>;

Environment process_environment();

}  // namespace dsc
