// libdsc_gloo.so, found at run time.
#pragma once

#include <string>

#include "base/environment.hpp"
#include "transport/table.h"

namespace dsc {

struct TransportLibrary {
  std::string path;  // of the file
  const dsc_transport_table* table = nullptr;
};

// Looks at the path DSC_GLOO_LIBRARY or, without it, beside this library, then in the system. It stays
// loaded. Throws NO_BACKEND, which says where was looked and what was wrong there.
TransportLibrary load_transport(const Environment& environment);

}  // namespace dsc
