// Reads the variables of one launcher.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "bootstrap/launcher_table.hpp"

namespace dsc {

// A number and the variable from which it was read.
struct Finding {
  const char* variable = nullptr;  // null if the variable is not set
  int32_t value = -1;

  explicit operator bool() const { return variable != nullptr; }
};

// The numbers that a row of the launcher table provides.
struct RowFindings {
  Finding rank, world_size, local_rank, local_world_size, hosts;
  std::string missing;    // why the row is not used; empty if it provides rank and world size
  bool half_set = false;  // it provides one of the two
};

// Throws CONFIG with the names of the variables for malformed numbers and contradictions.
RowFindings read_row(const Launcher& launcher, const Environment& environment);

// Returns the job id of the row: the values of its job_id variables that are set, joined by dots.
std::string row_job_id(const Launcher& launcher, const Environment& environment);

// Returns the host of rank 0; nullopt if the row's variable is not set. Throws CONFIG if it is malformed.
std::optional<std::string> row_master(const HostSource& source, const Environment& environment);

// Returns all variables that the row reads, with their values.
using VariableList = std::vector<std::pair<std::string, std::optional<std::string>>>;
VariableList row_variables(const Launcher& launcher, const Environment& environment);

}  // namespace dsc
