#include "dsc/trace.h"

#include <string>

#include "base/file.hpp"
#include "base/guard.hpp"
#include "checks.hpp"
#include "comm_call.hpp"
#include "control/trace_writer.hpp"
#include "give.hpp"

namespace {

std::string target_path(const dsc::Comm& comm, const char* path) {
  if (path && *path == 0) dsc::fail(DSC_ERR_INVALID_ARG, "path is empty");
  std::string chosen = path ? path : comm.trace_path();
  if (chosen.empty())
    dsc::fail(DSC_ERR_INVALID_ARG, "path is NULL, and DSC_TRACE_DIR was not set when the world was made");
  return chosen;
}

}  // namespace

dsc_result_t dsc_trace_dump(const dsc_comm_t* comm, const char* path) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    dsc::replace_file(target_path(*pinned, path), pinned->trace("call"));
  });
}

dsc_result_t dsc_trace_json(const dsc_comm_t* comm, char* text, size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_comm(comm);
    return dsc::give_text(pinned->trace("call"), text, capacity, needed);
  });
}

// A signal handler may call this. It must not fail with an error text, because storing a text is not
// async-signal-safe.
dsc_result_t dsc_trace_dump_request(void) {
  return dsc::guard_pure(__func__, [] { return dsc::TraceWriter::request(); });
}
