// libdsc_gloo.so, found at run time.
#pragma once

#include <string>

#include "base/environment.hpp"
#include "wire/table.h"

namespace dsc {

struct WireLibrary {
  std::string path;  // of the file
  const dsc_wire_table* table = nullptr;
};

// Looks at the path DSC_GLOO_LIBRARY or, without it, beside this library, then in the system. It stays
// loaded. Throws NO_BACKEND, which says where was looked and what was wrong there.
WireLibrary load_wire(const Environment& environment);

}  // namespace dsc
