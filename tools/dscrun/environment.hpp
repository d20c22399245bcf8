// Environments of processes that dscrun starts, as lists of NAME=VALUE.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace dscrun {

std::vector<std::string> own_environment();

// Replaces the variable that has this name; adds it if there is none.
void set_variable(std::vector<std::string>& environment, const std::string& assignment);

// Removes variables that start with one of these texts: "NAME=", or the beginning of a name.
void drop_variables(std::vector<std::string>& environment, std::initializer_list<std::string_view> starts);

// Returns the names, sorted and each once. Only names may be shown, because values may be secrets.
std::vector<std::string> variable_names(const std::vector<std::string>& environment);

}  // namespace dscrun
