// The functions of libpmix that libdsc uses, loaded at run time.
#pragma once

#include <pmix.h>

#include <string>

#include "base/environment.hpp"

namespace dsc {

struct PmixLibrary {
  std::string path;  // path of the file, or the name with which the system found it
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Get) get = nullptr;
  decltype(&PMIx_Get_nb) get_nb = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Register_event_handler) register_events = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;
  decltype(&PMIx_Get_version) version = nullptr;
};

// Loads the library from the path in DSC_PMIX_LIBRARY or, if that is not set, from the system's search path.
// Throws NO_BACKEND.
PmixLibrary load_pmix(const Environment& environment);

}  // namespace dsc
