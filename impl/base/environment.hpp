// Access to environment variables through a function, so that tests can pass their own. Nothing here modifies
// the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace dsc {

// Returns the value of a variable, or nullopt if it is unset or empty: launchers make no difference between
// the two.
using Environment = std::function<std::optional<std::string>(const char* name)>;

Environment process_environment();

}  // namespace dsc
