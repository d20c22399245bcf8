// Environments of processes to start: lists of NAME=VALUE.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace dscrun {

std::vector<std::string> own_environment();

// In the place of the variable that has this name, if there is one.
void set_variable(std::vector<std::string>& environment, const std::string& assignment);

// Those that start with one of these texts: "NAME=" or the begin of names.
void drop_variables(std::vector<std::string>& environment, std::initializer_list<std::string_view> starts);

// Sorted, each once: what may be shown, for values may be secrets.
std::vector<std::string> variable_names(const std::vector<std::string>& environment);

}  // namespace dscrun
