#include "dsc/comm.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "comm_call.hpp"
#include "error_info.hpp"
#include "give.hpp"
#include "group_options.hpp"
#include "op_stats.hpp"

dsc_result_t dsc_comm_rank(const dsc_comm_t* comm, int32_t* rank) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::require(rank, "rank") = pinned->rank();
  });
}

dsc_result_t dsc_comm_size(const dsc_comm_t* comm, int32_t* size) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::require(size, "size") = pinned->size();
  });
}

dsc_result_t dsc_comm_local_rank(const dsc_comm_t* comm, int32_t* local_rank) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::require(local_rank, "local_rank") = pinned->world_info().local_rank;
  });
}

dsc_result_t dsc_comm_local_size(const dsc_comm_t* comm, int32_t* local_size) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::require(local_size, "local_size") = pinned->world_info().local_size;
  });
}

dsc_result_t dsc_comm_backend(const dsc_comm_t* comm, int32_t* backend) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::require(backend, "backend") = pinned->backend();
  });
}

dsc_result_t dsc_comm_device(const dsc_comm_t* comm, int32_t* device) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::require(device, "device") = pinned->device();
  });
}

dsc_result_t dsc_comm_world_size(const dsc_comm_t* comm, int32_t* world_size) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::require(world_size, "world_size") = pinned->world_info().world_size;
  });
}

dsc_result_t dsc_comm_id(const dsc_comm_t* comm, uint64_t* id) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::require(id, "id") = pinned->id();
  });
}

dsc_result_t dsc_comm_name(const dsc_comm_t* comm, char* text, size_t capacity, size_t* needed) {
  return dsc::guard(__func__,
                    [&] { return dsc::give_text(dsc::pin_comm(comm)->name(), text, capacity, needed); });
}

dsc_result_t dsc_comm_master_addr(const dsc_comm_t* comm, char* text, size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    return dsc::give_text(dsc::pin_comm(comm)->world_info().master_addr, text, capacity, needed);
  });
}

dsc_result_t dsc_comm_master_port(const dsc_comm_t* comm, int32_t* port) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::require(port, "port") = pinned->world_info().master_port;
  });
}

dsc_result_t dsc_comm_source(const dsc_comm_t* comm, char* text, size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    return dsc::give_text(dsc::pin_comm(comm)->world_info().source, text, capacity, needed);
  });
}

dsc_result_t dsc_comm_start_summary(const dsc_comm_t* comm, char* text, size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    return dsc::give_text(dsc::pin_comm(comm)->world_info().report, text, capacity, needed);
  });
}

dsc_result_t dsc_comm_tuning(const dsc_comm_t* comm, char* text, size_t capacity, size_t* needed) {
  return dsc::guard(__func__,
                    [&] { return dsc::give_text(dsc::pin_comm(comm)->tuning(), text, capacity, needed); });
}

dsc_result_t dsc_comm_progress_thread(const dsc_comm_t* comm, int32_t* has_progress_thread) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::require(has_progress_thread, "has_progress_thread") = pinned->world_info().progress_thread ? 1 : 0;
  });
}

dsc_result_t dsc_comm_global_rank(const dsc_comm_t* comm, int32_t group_rank, int32_t* global_rank) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::require(global_rank, "global_rank");
    dsc::check_rank("group_rank", group_rank, pinned->size());
    *global_rank = pinned->global_rank(group_rank);
  });
}

dsc_result_t dsc_comm_group_rank(const dsc_comm_t* comm, int32_t global_rank, int32_t* group_rank) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::require(group_rank, "group_rank");
    dsc::check_rank("global_rank", global_rank, pinned->world_info().world_size);
    *group_rank = pinned->group_rank(global_rank);
  });
}

dsc_result_t dsc_comm_options_init(dsc_comm_options_t* options, size_t struct_size) {
  return dsc::guard_pure(__func__, [&] { dsc::init_group_options(options, struct_size); });
}

dsc_result_t dsc_comm_split(dsc_comm_t* comm, int32_t color, int32_t key, const dsc_comm_options_t* options,
                            dsc_comm_t** group) {
  return dsc::guard(__func__, [&] {
    if (group) *group = nullptr;
    dsc::CommCall inside(comm);
    dsc::require(group, "group");
    if (color < -1)
      dsc::fail(DSC_ERR_INVALID_ARG, "color is %d, expected 0 or more, or -1 for no group", color);
    *group = dsc::open_comm(inside->split(color, key, dsc::read_group_options(options)));
  });
}

dsc_result_t dsc_comm_create_group(dsc_comm_t* comm, const int32_t* ranks, size_t n_ranks,
                                   const dsc_comm_options_t* options, dsc_comm_t** group) {
  return dsc::guard(__func__, [&] {
    if (group) *group = nullptr;
    dsc::CommCall inside(comm);
    dsc::require(group, "group");
    dsc::require(ranks, "ranks");
    if (n_ranks < 1 || n_ranks > static_cast<size_t>(inside->size()))
      dsc::fail(DSC_ERR_INVALID_ARG, "n_ranks is %zu, expected 1 to %d", n_ranks, inside->size());
    for (size_t i = 0; i < n_ranks; ++i) {
      if (ranks[i] < 0 || ranks[i] >= inside->size())
        dsc::fail(DSC_ERR_INVALID_ARG, "ranks[%zu] is %d, expected 0 to %d", i, ranks[i], inside->size() - 1);
      if (std::find(ranks, ranks + i, ranks[i]) != ranks + i)
        dsc::fail(DSC_ERR_INVALID_ARG, "ranks has rank %d twice, expected each rank once", ranks[i]);
    }
    *group = dsc::open_comm(inside->create_group({ranks, n_ranks}, dsc::read_group_options(options)));
  });
}

dsc_result_t dsc_comm_adopt(dsc_comm_t* comm, const char* library, void* communicator,
                            const dsc_comm_options_t* options, dsc_comm_t** group) {
  return dsc::guard(__func__, [&] {
    if (group) *group = nullptr;
    dsc::CommCall inside(comm);
    dsc::require(group, "group");
    dsc::require(library, "library");
    if (std::strcmp(library, "nccl") != 0)
      dsc::fail(DSC_ERR_INVALID_ARG, "unknown library \"%.32s\", expected nccl", library);
    if (!communicator) dsc::fail(DSC_ERR_INVALID_ARG, "communicator is NULL");
    *group = dsc::open_comm(inside->adopt(communicator, dsc::read_group_options(options)));
  });
}

dsc_result_t dsc_comm_set_timeout(dsc_comm_t* comm, int32_t timeout_ms) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    if (timeout_ms < 1) dsc::fail(DSC_ERR_INVALID_ARG, "timeout_ms is %d, expected 1 or more", timeout_ms);
    pinned->set_timeout_ms(timeout_ms);
  });
}

dsc_result_t dsc_comm_timeout(const dsc_comm_t* comm, int32_t* timeout_ms) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::require(timeout_ms, "timeout_ms") = pinned->timeout_ms();
  });
}

dsc_result_t dsc_comm_abort(dsc_comm_t* comm) {
  return dsc::guard(__func__, [&] { dsc::pin_comm(comm)->abort(); });
}

dsc_result_t dsc_comm_finalize(dsc_comm_t* comm) {
  return dsc::guard(__func__, [&] {
    dsc::CommCall inside(comm);
    inside->finalize();
  });
}

dsc_result_t dsc_comm_destroy(dsc_comm_t* comm) {
  return dsc::guard(__func__, [&] {
    if (!comm) return;
    auto pinned = dsc::pin_comm(comm);
    pinned.close();
    pinned->leave();
  });
}

dsc_result_t dsc_comm_error_info(const dsc_comm_t* comm, dsc_error_info_t* info) {
  return dsc::guard(__func__, [&] { dsc::write_error_info(dsc::pin_comm(comm)->failure(), info); });
}

dsc_result_t dsc_comm_set_nonfinite_check(dsc_comm_t* comm, int32_t check) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    if (check < DSC_NONFINITE_CHECK_OFF || check > DSC_NONFINITE_CHECK_FAIL)
      dsc::fail(DSC_ERR_INVALID_ARG, "check is %d, expected 0 (off), 1 (count) or 2 (fail)", check);
    if (check != DSC_NONFINITE_CHECK_OFF && !pinned->checks_nonfinite())
      dsc::fail(DSC_ERR_UNSUPPORTED, "the check does not work between hosts in this version");
    pinned->nonfinite()->set_check(static_cast<dsc::NonFiniteCheck>(check));
  });
}

dsc_result_t dsc_comm_nonfinite_info(dsc_comm_t* comm, int32_t clear, dsc_nonfinite_info_t* info) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    if (clear != 0 && clear != 1) dsc::fail(DSC_ERR_INVALID_ARG, "clear is %d, expected 0 or 1", clear);
    dsc_nonfinite_info_t filled{};
    // Checked first, so that a wrong struct_size does not clear the totals.
    dsc::write_sized(info, filled, "info");
    const dsc::NonFiniteTotals totals = pinned->nonfinite()->totals(clear == 1);
    filled.elements = totals.elements;
    filled.operations = totals.operations;
    filled.sequence = totals.sequence;
    filled.index = totals.index;
    filled.rank = totals.rank;
    std::snprintf(filled.operation, sizeof filled.operation, "%s", totals.operation);
    dsc::write_sized(info, filled, "info");
  });
}

dsc_result_t dsc_comm_stats(const dsc_comm_t* comm, dsc_op_stats_t* stats, size_t capacity, size_t* needed) {
  return dsc::guard(
      __func__, [&] { return dsc::write_op_stats(dsc::pin_comm(comm)->stats(), stats, capacity, needed); });
}
