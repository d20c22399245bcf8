#include "dsc/log.h"

#include <cstdio>
#include <string>

#include "base/guard.hpp"
#include "base/log_listeners.hpp"

namespace {

void check_level(int32_t level) {
  if (level < DSC_LOG_OFF || level > DSC_LOG_DEBUG)
    dsc::fail(DSC_ERR_INVALID_ARG, "level is %d, expected 0 (off) to 4 (debug)", level);
}

// The log thread is the parent's, and may have held the queue's lock at fork().
void check_not_forked() {
  if (dsc::is_forked_child()) dsc::fail(DSC_ERR_FORKED, "called in a child made by fork()");
}

}  // namespace

dsc_result_t dsc_log_set_callback(dsc_log_fn callback, void* ctx, int32_t level) {
  return dsc::guard_pure(__func__, [&] {
    check_level(level);
    check_not_forked();
    dsc::set_log_callback(callback, ctx, level);
  });
}

dsc_result_t dsc_log_read(int32_t level, char* message, size_t message_bytes, int32_t* message_level) {
  return dsc::guard_pure(__func__, [&] {
    check_level(level);
    check_not_forked();
    if (!message) dsc::fail(DSC_ERR_INVALID_ARG, "message is NULL");
    if (!message_level) dsc::fail(DSC_ERR_INVALID_ARG, "message_level is NULL");
    if (message_bytes < 2)
      dsc::fail(DSC_ERR_INVALID_ARG, "message_bytes is %zu, expected at least 2", message_bytes);
    std::string text;
    *message_level = DSC_LOG_OFF;
    const bool read = dsc::read_log(level, text, *message_level);
    std::snprintf(message, message_bytes, "%s", text.c_str());
    return read ? DSC_OK : DSC_DONE;
  });
}
