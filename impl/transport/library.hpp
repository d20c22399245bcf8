// The module libdsc_gloo.so, loaded at run time.
#pragma once

#include <string>

#include "base/environment.hpp"
#include "transport/table.h"

namespace dsc {

struct TransportLibrary {
  std::string path;  // path of the loaded file
  const dsc_transport_table* table = nullptr;
};

// Loads the path in DSC_GLOO_LIBRARY or, if it is not set, the file beside this library, then from the
// system's search path. It stays loaded. Throws NO_BACKEND with the places that were tried and what was wrong
// there.
TransportLibrary load_transport(const Environment& environment);

}  // namespace dsc
