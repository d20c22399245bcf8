#include "dsc/recovery.h"

#include "base/guard.hpp"
#include "checks.hpp"
#include "comm_call.hpp"
#include "give.hpp"
#include "group_options.hpp"

dsc_result_t dsc_comm_agree(dsc_comm_t* comm, int32_t flags, int32_t* agreed) {
  return dsc::guard(__func__, [&] {
    dsc::OperationCall inside(comm);
    dsc::require(agreed, "agreed");
    inside->coalesced.reset();
    *agreed = inside->agree_on(flags);
  });
}

dsc_result_t dsc_comm_shrink(dsc_comm_t* comm, const dsc_comm_options_t* options, dsc_comm_t** shrunk) {
  return dsc::guard(__func__, [&] {
    if (shrunk) *shrunk = nullptr;
    dsc::OperationCall inside(comm);
    dsc::require(shrunk, "shrunk");
    inside->coalesced.reset();
    *shrunk = dsc::open_comm(inside->shrink(dsc::read_group_options(options)));
  });
}

dsc_result_t dsc_comm_missing(const dsc_comm_t* comm, int32_t* ranks, size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    return dsc::give_list("ranks", dsc::pin_comm(comm)->missing(), ranks, capacity, needed);
  });
}
