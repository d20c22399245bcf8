#include "dscrun/environment.hpp"

#include <unistd.h>

#include <algorithm>

namespace dscrun {

std::vector<std::string> own_environment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

void set_variable(std::vector<std::string>& environment, const std::string& assignment) {
  drop_variables(environment, {std::string_view(assignment).substr(0, assignment.find('=') + 1)});
  environment.push_back(assignment);
}

void drop_variables(std::vector<std::string>& environment, std::initializer_list<std::string_view> starts) {
  for (const std::string_view start : starts)
    std::erase_if(environment, [start](const std::string& entry) { return entry.starts_with(start); });
}

std::vector<std::string> variable_names(const std::vector<std::string>& environment) {
  std::vector<std::string> names;
  for (const std::string& entry : environment) names.push_back(entry.substr(0, entry.find('=')));
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace dscrun
