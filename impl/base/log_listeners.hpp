// The receivers of log records besides the standard error stream, which DSC_LOG controls.
#pragma once

#include <cstdint>
#include <string>

namespace dsc {

// One record of the log.
struct LogRecord {
  int32_t level = 0;
  std::string text;
  int32_t rank = -1;
  int64_t time_ns = 0;  // CLOCK_REALTIME
};

// A user-defined function that receives records.
struct LogListener {
  void (*call)(const LogListener& listener, const LogRecord& record) = nullptr;  // nullptr if nobody listens
  void (*function)() = nullptr;  // the user's function, cast to the type that `call` knows
  void* ctx = nullptr;
  int32_t level = 0;             // least urgent level that it receives
  bool replaces_stderr = false;  // records that it receives are not written to the standard error stream
};

// Returns when the replaced listener has received the records made before, or when nothing was delivered for
// 5 s, and no call of it is running. Inside a call of the listener it does not wait for that call.
void set_log_listener(const LogListener& listener);

// Takes the oldest record; false if there is none. `level` sets which levels are recorded for polling from
// now on.
bool read_log(int32_t level, std::string& text, int32_t& record_level);

}  // namespace dsc
