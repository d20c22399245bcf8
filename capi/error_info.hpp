// Converts failures to the structs of the C API.
#pragma once

#include "base/failure.hpp"
#include "base/options.hpp"
#include "dsc/comm.h"

namespace dsc {

void write_error_info(const Failure& failure, dsc_error_info_t* info);

}  // namespace dsc
