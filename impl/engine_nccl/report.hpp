// The part of dsc_engines_json() about NCCL.
#pragma once

#include "comm/library_report.hpp"

namespace dsc {

// Reports NCCL. If it is found but the CUDA driver is missing, reports what was found.
void look_for_nccl(LibraryReport& report);

}  // namespace dsc
