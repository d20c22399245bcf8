// Options of calls that create a communicator from another one.
#pragma once

#include "comm/comm.hpp"
#include "dsc/comm.h"

namespace dsc {

void init_group_options(dsc_comm_options_t* options, size_t struct_size);
GroupOptions read_group_options(const dsc_comm_options_t* given);  // NULL means defaults

}  // namespace dsc
