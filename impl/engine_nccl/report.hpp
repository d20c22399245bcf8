// What dsc_engines_json() reports about NCCL.
#pragma once

#include "comm/library_report.hpp"

namespace dsc {

// Also reports what was found if there is no driver for it.
void look_for_nccl(LibraryReport& report);

}  // namespace dsc
