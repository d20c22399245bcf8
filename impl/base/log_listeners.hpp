// Receivers of log records in addition to the standard error stream.
#pragma once

#include <cstdint>
#include <string>

namespace dsc {

struct LogRecord {
  int32_t level = 0;
  std::string text;
  int32_t rank = -1;
  int64_t time_ns = 0;  // CLOCK_REALTIME
  // Whether to write the record to the standard error stream if there is no listener.
  bool is_reminder = false;
};

// A function of the program that receives records.
struct LogListener {
  // Nullptr if there is no listener.
  void (*call)(const LogListener& listener, const LogRecord& record) = nullptr;
  void (*function)() = nullptr;  // the program's function, of the type that `call` expects
  void* context = nullptr;
  int32_t level = 0;  // it receives records up to this level, instead of the standard error stream
};

// Replaces the listener. Returns when the previous listener has received all earlier records, or has made no
// progress for 5 s. Also waits until no call of the previous listener is running, unless this function is
// called inside that listener.
void set_log_listener(const LogListener& listener);

// Takes the oldest record from the queue. From this call on, records up to `level` are queued.
bool read_log(int32_t level, std::string& text, int32_t& record_level);

}  // namespace dsc
