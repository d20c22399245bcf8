#include "dsc/recovery.h"

#include <algorithm>

#include "base/guard.hpp"
#include "checks.hpp"
#include "comm_call.hpp"
#include "group_options.hpp"

dsc_result_t dsc_comm_agree(dsc_comm_t* comm, int32_t flags, int32_t* agreed) {
  return dsc::guard(__func__, [&] {
    dsc::OperationCall inside(comm);
    dsc::require(agreed, "agreed");
    inside->coalesced.reset();
    *agreed = inside->agree_on(flags);
  });
}

dsc_result_t dsc_comm_shrink(dsc_comm_t* comm, const dsc_group_options_t* options, dsc_comm_t** shrunk) {
  return dsc::guard(__func__, [&] {
    if (shrunk) *shrunk = nullptr;
    dsc::OperationCall inside(comm);
    dsc::require(shrunk, "shrunk");
    inside->coalesced.reset();
    *shrunk = dsc::open_comm(inside->shrink(dsc::read_group_options(options)));
  });
}

dsc_result_t dsc_comm_missing(dsc_comm_t* comm, int32_t* ranks, int32_t capacity, int32_t* n_ranks) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::require(n_ranks, "n_ranks");
    if (capacity < 0) dsc::fail(DSC_ERR_INVALID_ARG, "capacity is %d, expected 0 or more", capacity);
    if (capacity > 0) dsc::require(ranks, "ranks");
    const std::vector<int32_t> missing = pinned->missing();
    std::copy_n(missing.begin(), std::min(missing.size(), static_cast<size_t>(capacity)), ranks);
    *n_ranks = static_cast<int32_t>(missing.size());
  });
}
