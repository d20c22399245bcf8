#include "base/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <limits>
#include <string>

#include "base/dispatch.hpp"
#include "base/log_listeners.hpp"
#include "base/log_rank.hpp"
#include "base/mutex.hpp"
#include "base/per_process.hpp"
#include "base/process_guard.hpp"
#include "base/utf8.hpp"

namespace dsc {
namespace {

constexpr size_t kQueueRecords = 1024;
constexpr size_t kTextBytes = 1024;
constexpr int64_t kLateReportNs = 10'000'000'000;
constexpr int64_t kReminderNs = 30'000'000'000;
// A listener that makes no progress for this time may be replaced before it has received all of its records.
constexpr auto kNoProgress = std::chrono::seconds(5);
constexpr const char* kLevelNames[] = {"off", "error", "warn", "info", "debug"};

std::atomic<int32_t> process_rank{-1};
thread_local int32_t thread_rank = -1;

using Record = LogRecord;

Record record_of(int32_t level, std::string text) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return {level, std::move(text), log_rank(), now.tv_sec * 1'000'000'000LL + now.tv_nsec, false};
}

// Returns the name of this host for log lines: DSC_HOST_ID if set, otherwise the system's host name.
std::string host_name() {
  char name[256] = {};
  const char* const given = std::getenv("DSC_HOST_ID");
  if (given && *given) return given;
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

// Formats a time in UTC, so that lines of several hosts can be sorted together.
std::string time_text(int64_t time_ns) {
  const std::time_t seconds = time_ns / 1'000'000'000;
  tm parts{};
  char day[32], text[48];
  if (::gmtime_r(&seconds, &parts) == nullptr) return "?";
  std::strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text, sizeof text, "%s.%03dZ", day, static_cast<int>(time_ns / 1'000'000 % 1000));
  return text;
}

// A bounded queue. It counts the records that it has to drop and reports their number in a record.
class RecordQueue {
 public:
  void push(Record record) {
    if (records_.size() >= kQueueRecords) {
      ++dropped_;
      return;
    }
    if (dropped_ > 0) {
      records_.push_back(record_of(
          DSC_LOG_LEVEL_WARN, std::to_string(dropped_) + " log records were dropped: the queue was full"));
      dropped_ = 0;
    }
    records_.push_back(std::move(record));
  }
  // Returns how many records have entered the queue so far.
  uint64_t pushed() const { return popped_ + records_.size(); }
  uint64_t popped() const { return popped_; }
  bool empty() const { return records_.empty(); }
  Record pop() {
    Record record = std::move(records_.front());
    records_.pop_front();
    ++popped_;
    return record;
  }
  void clear() { records_.clear(); }

 private:
  std::deque<Record> records_;
  size_t dropped_ = 0;
  uint64_t popped_ = 0;
};

int32_t level_from_environment() {
  const char* wanted = std::getenv("DSC_LOG");
  if (!wanted) return DSC_LOG_LEVEL_OFF;
  for (int32_t level = 0; level <= DSC_LOG_LEVEL_DEBUG; ++level)
    if (std::strcmp(wanted, kLevelNames[level]) == 0) return level;
  return DSC_LOG_LEVEL_WARN;  // a word that is not a level shows that the user wants to see records
}

// Returns whether DSC_LOG is unset. Reminders are written only then: a user who sets it to "off" gets none.
bool is_unset() { return std::getenv("DSC_LOG") == nullptr; }

// Routes records to the standard error stream, to the listener, and to callers of read_log(). Holds the state
// of the log of this process.
class LogHub {
 public:
  int32_t level() const { return level_.load(std::memory_order_relaxed); }

  // Returns whether reminders are written although nobody has requested records.
  bool reminds() const { return is_unset_ && level() == DSC_LOG_LEVEL_OFF; }

  void add(int32_t level, const char* text, bool is_reminder) {
    Record record = record_of(level, text);
    record.is_reminder = is_reminder;
    MutexLock lock(mutex_);
    if (level <= poll_level_) polled_.push(record);
    if (level > std::max(stderr_level_, listener_level()) && !is_reminder) return;
    delivered_.push(std::move(record));
    if (!thread_started_) start_dispatch(Duty::kLog, deliver_all);
    thread_started_ = true;
    dispatch(Duty::kLog);
  }

  void set_listener(const LogListener& listener) {
    MutexLock lock(mutex_);
    const bool waits = !in_callback();
    if (waits) await_records();
    listener_ = listener;
    update_level();
    if (waits) await_delivery();
  }

  bool read(int32_t level, Record& record) {
    MutexLock lock(mutex_);
    poll_level_ = level;
    update_level();
    if (level == DSC_LOG_LEVEL_OFF) polled_.clear();
    if (polled_.empty()) return false;
    record = polled_.pop();
    return true;
  }

  // Called at exit. Waits up to 100 ms until the thread has written the queued records.
  void drain() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    MutexLock lock(mutex_);
    while (thread_started_ && (delivering_ || !delivered_.empty()))
      if (changed_.wait_until(mutex_, end) == std::cv_status::timeout) return;
  }

 private:
  // Returns when the listener has received all earlier records, or when delivery makes no progress.
  void await_records() DSC_REQUIRES(mutex_) {
    const uint64_t made_before = delivered_.pushed();
    while (listener_.call && delivered_.popped() < made_before) {
      const auto end = std::chrono::steady_clock::now() + kNoProgress;  // each delivery wakes this thread
      if (changed_.wait_until(mutex_, end) == std::cv_status::timeout && !delivering_) break;
    }
  }

  // Returns when no thread is inside a replaced listener. It waits for the current delivery only, because the
  // next delivery already calls the new listener.
  void await_delivery() DSC_REQUIRES(mutex_) {
    const uint64_t number = delivered_.popped();
    while (delivering_ && delivered_.popped() == number) changed_.wait(mutex_);
  }

  void update_level() DSC_REQUIRES(mutex_) {
    level_ = std::max({stderr_level_, listener_level(), poll_level_});
  }

  int32_t listener_level() const DSC_REQUIRES(mutex_) {
    return listener_.call ? listener_.level : DSC_LOG_LEVEL_OFF;
  }

  // The function that the background thread runs for Duty::kLog.
  static void deliver_all();

  // Delivers one record; returns false if there was none.
  bool deliver_next() {
    mutex_.lock();
    if (delivered_.empty()) {
      mutex_.unlock();
      return false;
    }
    const Record record = delivered_.pop();
    const LogListener listener = record.level <= listener_level() ? listener_ : LogListener{};
    delivering_ = true;
    mutex_.unlock();
    deliver(record, listener);
    mutex_.lock();
    delivering_ = false;
    changed_.notify_all();
    mutex_.unlock();
    return true;
  }

  void print(const Record& record) const {
    const std::string rank = record.rank < 0 ? "" : " rank " + std::to_string(record.rank);
    std::fprintf(stderr, "%s libdsc[%s:%d%s] %s: %s\n", time_text(record.time_ns).c_str(), host_.c_str(),
                 getpid(), rank.c_str(), kLevelNames[record.level], record.text.c_str());
  }

  void deliver(const Record& record, const LogListener& listener) const {
    if (!listener.call) {
      if (record.level <= stderr_level_ || record.is_reminder) print(record);
      return;
    }
    CallbackScope scope;
    call_out([&] { listener.call(listener, record); });
  }

  Mutex mutex_;
  Condition changed_;
  RecordQueue delivered_ DSC_GUARDED_BY(mutex_);
  RecordQueue polled_ DSC_GUARDED_BY(mutex_);
  const std::string host_ = host_name();
  const int32_t stderr_level_ = level_from_environment();
  const bool is_unset_ = dsc::is_unset();
  LogListener listener_ DSC_GUARDED_BY(mutex_);
  int32_t poll_level_ DSC_GUARDED_BY(mutex_) = DSC_LOG_LEVEL_OFF;
  bool delivering_ DSC_GUARDED_BY(mutex_) = false;
  bool thread_started_ DSC_GUARDED_BY(mutex_) = false;
  std::atomic<int32_t> level_{level_from_environment()};
};

LogHub& hub() { return PerProcess<LogHub>::get(); }

void LogHub::deliver_all() {
  while (hub().deliver_next()) {
  }
}

bool reminders_on() noexcept {
  bool wanted = false;
  call_out([&] { wanted = hub().reminds(); });
  return wanted && !is_forked_child();
}

void add_record(int32_t level, bool is_reminder, const char* format, va_list args) noexcept {
  char text[kTextBytes];
  const int bytes = std::vsnprintf(text, sizeof text, format, args);
  if (bytes >= static_cast<int>(sizeof text)) text[utf8_whole(text)] = 0;
  make_utf8(text);  // the text may quote arguments that are not valid UTF-8
  std::replace(text, text + std::strlen(text), '\n', ' ');  // each record must be one line
  // If memory or threads run out, the record is lost, but the caller continues.
  call_out([&] { hub().add(level, text, is_reminder); });
}

__attribute__((destructor)) void drain_log() {
  if (log_enabled(DSC_LOG_LEVEL_ERROR) || reminders_on()) hub().drain();
}

}  // namespace

bool log_enabled(int32_t level) noexcept {
  bool wanted = false;
  call_out([&] { wanted = level <= hub().level(); });  // hub() allocates at the first call, which can throw
  return wanted && !is_forked_child();
}

void log(int32_t level, const char* format, ...) noexcept {
  if (!log_enabled(level)) return;
  va_list args;
  va_start(args, format);
  add_record(level, false, format, args);
  va_end(args);
}

int64_t late_report_ns() noexcept {
  if (log_enabled(DSC_LOG_LEVEL_WARN)) return kLateReportNs;
  return reminders_on() ? kReminderNs : std::numeric_limits<int64_t>::max();
}

void remind(const char* format, ...) noexcept {
  const bool is_reminder = reminders_on();
  if (!is_reminder && !log_enabled(DSC_LOG_LEVEL_WARN)) return;
  va_list args;
  va_start(args, format);
  add_record(DSC_LOG_LEVEL_WARN, is_reminder, format, args);
  va_end(args);
}

void set_log_rank(int32_t rank, bool of_thread) noexcept {
  if (of_thread)
    thread_rank = rank;
  else
    process_rank.store(rank, std::memory_order_relaxed);
}

int32_t log_rank() noexcept {
  return thread_rank >= 0 ? thread_rank : process_rank.load(std::memory_order_relaxed);
}

void set_log_listener(const LogListener& listener) { hub().set_listener(listener); }

bool read_log(int32_t level, std::string& text, int32_t& record_level) {
  Record record;
  if (!hub().read(level, record)) return false;
  text = std::move(record.text);
  record_level = record.level;
  return true;
}

}  // namespace dsc
