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

// Makes the program's function the listener; `call` calls it with its own type.
void listen(void (*function)(), void* ctx, int32_t level, bool replaces_stderr,
            void (*call)(const dsc::LogListener&, const dsc::LogRecord&)) {
  check_level(level);
  check_not_forked();
  dsc::set_log_listener({function ? call : nullptr, function, ctx, level, replaces_stderr});
}

void call_plain(const dsc::LogListener& listener, const dsc::LogRecord& record) {
  reinterpret_cast<dsc_log_fn>(listener.function)(listener.ctx, record.level, record.text.c_str());
}

void call_whole(const dsc::LogListener& listener, const dsc::LogRecord& record) {
  const dsc_log_record_t shown{sizeof(dsc_log_record_t), record.level, record.rank, record.time_ns,
                               record.text.c_str()};
  reinterpret_cast<dsc_log_record_fn>(listener.function)(listener.ctx, &shown);
}

}  // namespace

dsc_result_t dsc_log_set_callback(dsc_log_fn callback, void* ctx, int32_t level) {
  return dsc::guard_pure(
      __func__, [&] { listen(reinterpret_cast<void (*)()>(callback), ctx, level, false, call_plain); });
}

dsc_result_t dsc_log_set_record_callback(dsc_log_record_fn callback, void* ctx, int32_t level) {
  return dsc::guard_pure(
      __func__, [&] { listen(reinterpret_cast<void (*)()>(callback), ctx, level, true, call_whole); });
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
