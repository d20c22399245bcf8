// Who receives log records besides DSC_LOG's standard error stream.
#pragma once

#include <cstdint>
#include <string>

namespace dsc {

struct LogRecord {
  int32_t level = 0;
  std::string text;
  int32_t rank = -1;
  int64_t time_ns = 0;       // CLOCK_REALTIME
  bool is_reminder = false;  // written to the standard error stream if nobody listens
};

// A function of the program's that receives records.
struct LogListener {
  void (*call)(const LogListener& listener, const LogRecord& record) = nullptr;  // nullptr: nobody listens
  void (*function)() = nullptr;  // the program's, of the type that `call` knows
  void* context = nullptr;
  int32_t level = 0;  // the least urgent that it receives, in place of the standard error stream
};

// Returns when the listener that it replaces has got the records that were made before, or none was delivered
// for 5 s; and only when no call of it is running, except from inside that call.
void set_log_listener(const LogListener& listener);

// Takes the oldest record; `level` sets what is recorded from now on.
bool read_log(int32_t level, std::string& text, int32_t& record_level);

}  // namespace dsc
