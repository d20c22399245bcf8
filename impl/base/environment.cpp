#include "base/environment.hpp"

#include <cstdlib>

namespace dsc {

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
}

}  // namespace dsc
