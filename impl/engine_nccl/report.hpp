// What dsc_engines_json() says of NCCL.
#pragma once

#include "comm/library_report.hpp"

namespace dsc {

// What was found is reported also where there is no driver for it.
void look_for_nccl(LibraryReport& report);

}  // namespace dsc
