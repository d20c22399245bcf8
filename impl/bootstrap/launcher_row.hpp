// What the environment says in the words of one launcher.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "bootstrap/launcher_table.hpp"

namespace dsc {

// A number, and the variable that it came from.
struct Finding {
  const char* variable = nullptr;  // null: not set
  int32_t value = -1;

  explicit operator bool() const { return variable != nullptr; }
};

struct RowFindings {
  Finding rank, world_size, local_rank, local_world_size, hosts;
  std::string missing;    // why the row does not count; empty: it gives rank and world size
  bool half_set = false;  // it gives one of the two
};

// Throws CONFIG, naming the variables, for what is no number and for contradictions.
RowFindings read_row(const Launcher& launcher, const Environment& environment);

// The row's own job id: what is set of its names, joined by dots.
std::string row_job_id(const Launcher& launcher, const Environment& environment);

// The host of rank 0; nothing if the row's variable is not set. Throws CONFIG if it makes no sense.
std::optional<std::string> row_master(const HostSource& source, const Environment& environment);

// All variables that the row looks at, with their values.
using VariableList = std::vector<std::pair<std::string, std::optional<std::string>>>;
VariableList row_variables(const Launcher& launcher, const Environment& environment);

}  // namespace dsc
