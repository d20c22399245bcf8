// Reading the environment through a function, so that tests pass their own. Nothing here writes it.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace dsc {

// The value of a variable; nothing if it is unset or empty, which launchers use alike.
using Environment = std::function<std::optional<std::string>(const char* name)>;

Environment process_environment();

}  // namespace dsc
