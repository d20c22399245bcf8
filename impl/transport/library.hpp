// The transport module of this process, loaded at run time.
#pragma once

#include <string>

#include "base/environment.hpp"
#include "transport/table.h"

namespace dsc {

struct TransportLibrary {
  std::string path;  // path of the loaded file
  const dsc_transport_table* table = nullptr;
};

// Loads the module that DSC_TRANSPORT names, or the default one: from the path in the module's variable, such
// as DSC_GLOO_LIBRARY, from the folder of this library, or from the system's search path. It stays loaded.
// Throws CONFIG for an unknown name, and NO_BACKEND with the paths that were tried and what was wrong with
// each.
TransportLibrary load_transport(const Environment& environment);

}  // namespace dsc
