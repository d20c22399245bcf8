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

// Loads the module that DSC_TRANSPORT names, or the default one. Searches in this order: the path in the
// module's variable, such as DSC_GLOO_LIBRARY; the folder of this library; the system's search path. The
// module is never unloaded. Throws CONFIG for an unknown name, and NO_BACKEND with the paths that were tried
// and the error of each.
TransportLibrary load_transport(const Environment& environment);

}  // namespace dsc
