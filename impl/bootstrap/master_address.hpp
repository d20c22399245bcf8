// The address at which the ranks of a job meet, and where that address comes from.
#pragma once

#include <cstdint>
#include <string>

#include "base/environment.hpp"
#include "bootstrap/launcher_table.hpp"

namespace dsc {

// The address, and the sources of host and port.
struct MasterFinding {
  std::string host;
  int32_t port;
  std::string host_from, port_from;  // "init_method", "option port", the name of a variable, or "default"
};

// Searches in this order: the caller's init_method and port (0: not given); MASTER_ADDR, DSC_PORT and
// MASTER_PORT; the launcher's variable; 127.0.0.1 and 29500. Throws INVALID_ARG for a wrong init_method, and
// CONFIG for wrong variables.
MasterFinding find_master(const char* init_method, int32_t port, const Environment& environment,
                          const HostSource& launchers);

}  // namespace dsc
