// Reads the variables of one launcher, which is one row of the table of launchers.
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

// The numbers that the variables of one launcher provide.
struct RowFindings {
  Finding rank, world_size, local_rank, local_world_size, hosts;
  std::string missing;  // why the launcher's numbers are not used; empty if they include rank and world size
  bool half_set = false;  // whether the launcher provides only one of rank and world size
};

// Throws CONFIG for malformed numbers and for contradictions. The message names the variables.
RowFindings read_row(const Launcher& launcher, const Environment& environment);

// Returns the job id: the values of the launcher's job_id variables that are set, joined by dots.
std::string row_job_id(const Launcher& launcher, const Environment& environment);

// Returns the host of rank 0, or nullopt if the launcher's variable is not set. Throws CONFIG if it is
// malformed.
std::optional<std::string> row_master(const HostSource& source, const Environment& environment);

// Returns all variables of the launcher that libdsc reads, with their values.
using VariableList = std::vector<std::pair<std::string, std::optional<std::string>>>;
VariableList row_variables(const Launcher& launcher, const Environment& environment);

}  // namespace dsc
