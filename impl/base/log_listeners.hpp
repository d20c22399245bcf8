// Receivers of log records, in addition to the standard error stream of DSC_LOG.
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

// A function of the program that receives records.
struct LogListener {
  void (*call)(const LogListener& listener, const LogRecord& record) = nullptr;  // nullptr: nobody listens
  void (*function)() = nullptr;  // the program's function, of the type that `call` expects
  void* context = nullptr;
  int32_t level = 0;  // the least urgent level that it receives, instead of the standard error stream
};

// Replaces the listener. Returns when the previous listener has received the records that were made before,
// or none was delivered for 5 s. It also waits until no call of the previous listener is running, except if
// this call comes from inside it.
void set_log_listener(const LogListener& listener);

// Takes the oldest record; `level` sets what is recorded from now on.
bool read_log(int32_t level, std::string& text, int32_t& record_level);

}  // namespace dsc
