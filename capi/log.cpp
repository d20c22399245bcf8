#include "dsc/log.h"

#include <string>

#include "base/guard.hpp"
#include "base/log_listeners.hpp"
#include "give.hpp"

namespace {

void check_level(int32_t level) {
  if (level < DSC_LOG_LEVEL_OFF || level > DSC_LOG_LEVEL_DEBUG)
    dsc::fail(DSC_ERR_INVALID_ARG, "level is %d, expected 0 (off) to 4 (debug)", level);
}

// In a forked child the log cannot be used: its thread exists only in the parent, and that thread may have
// held the queue's lock during fork().
void check_not_forked() {
  if (dsc::is_forked_child()) dsc::fail(DSC_ERR_FORKED, "called in a child made by fork()");
}

void call_function(const dsc::LogListener& listener, const dsc::LogRecord& record) {
  const dsc_log_record_t shown{sizeof(dsc_log_record_t), record.text.c_str(), record.time_ns, record.level,
                               record.rank};
  reinterpret_cast<dsc_log_fn>(listener.function)(listener.context, &shown);
}

}  // namespace

dsc_result_t dsc_log_set_callback(dsc_log_fn callback, void* context, dsc_log_level_t level) {
  return dsc::guard_pure(__func__, [&] {
    check_level(level);
    check_not_forked();
    dsc::set_log_listener(
        {callback ? call_function : nullptr, reinterpret_cast<void (*)()>(callback), context, level});
  });
}

dsc_result_t dsc_log_read(dsc_log_level_t level, char* text, size_t capacity, size_t* needed,
                          dsc_log_level_t* text_level) {
  return dsc::guard_pure(__func__, [&] {
    check_level(level);
    check_not_forked();
    dsc::check_room(text, "text", capacity, needed);
    dsc::require(text_level, "text_level") = DSC_LOG_LEVEL_OFF;
    if (capacity < 2) dsc::fail(DSC_ERR_INVALID_ARG, "capacity is %zu, expected at least 2", capacity);
    std::string record;
    const bool read = dsc::read_log(level, record, *text_level);
    const dsc_result_t given = dsc::give_text(record, text, capacity, needed);
    return read ? given : DSC_DONE;
  });
}
