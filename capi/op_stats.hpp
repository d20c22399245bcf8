// Converts statistics to the structs of the C API.
#pragma once

#include <vector>

#include "comm/comm.hpp"
#include "dsc/comm.h"

namespace dsc {

dsc_result_t write_op_stats(const std::vector<OpStats>& all, dsc_op_stats_t* stats, size_t capacity,
                            size_t* count);

}  // namespace dsc
