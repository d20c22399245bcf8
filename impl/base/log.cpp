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
#include <string>

#include "base/dispatch.hpp"
#include "base/log_listeners.hpp"
#include "base/log_rank.hpp"
#include "base/mutex.hpp"
#include "base/process_guard.hpp"

namespace dsc {
namespace {

constexpr size_t kQueueRecords = 1024;
constexpr size_t kTextBytes = 1024;
constexpr const char* kLevelNames[] = {"off", "error", "warn", "info", "debug"};

std::atomic<int32_t> process_rank{-1};
thread_local int32_t thread_rank = -1;

struct Record {
  int32_t level = DSC_LOG_OFF;
  std::string text;
  int32_t rank = -1;
  timespec time{};  // CLOCK_REALTIME
};

Record record_of(int32_t level, std::string text) {
  Record record{level, std::move(text), log_rank(), {}};
  ::clock_gettime(CLOCK_REALTIME, &record.time);
  return record;
}

// As error texts of start-up name this host: DSC_HOST_ID, or its name.
std::string host_name() {
  char name[256] = {};
  const char* const given = std::getenv("DSC_HOST_ID");
  if (given && *given) return given;
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

// Coordinated universal time, so that lines of several hosts can be sorted.
std::string time_text(const timespec& time) {
  tm parts{};
  char day[32], text[48];
  if (::gmtime_r(&time.tv_sec, &parts) == nullptr) return "?";
  std::strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text, sizeof text, "%s.%03ldZ", day, time.tv_nsec / 1'000'000);
  return text;
}

// A bounded queue that says how many records it had to drop.
class RecordQueue {
 public:
  void push(Record record) {
    if (records_.size() >= kQueueRecords) {
      ++dropped_;
      return;
    }
    if (dropped_ > 0) {
      records_.push_back(record_of(
          DSC_LOG_WARN, std::to_string(dropped_) + " log records were dropped: the queue was full"));
      dropped_ = 0;
    }
    records_.push_back(std::move(record));
  }
  bool empty() const { return records_.empty(); }
  Record pop() {
    Record record = std::move(records_.front());
    records_.pop_front();
    return record;
  }
  void clear() { records_.clear(); }

 private:
  std::deque<Record> records_;
  size_t dropped_ = 0;
};

int32_t level_from_environment() {
  const char* wanted = std::getenv("DSC_LOG");
  if (!wanted) return DSC_LOG_OFF;
  for (int32_t level = 0; level <= DSC_LOG_DEBUG; ++level)
    if (std::strcmp(wanted, kLevelNames[level]) == 0) return level;
  return DSC_LOG_WARN;  // an unknown word means that somebody wants to see something
}

class LogHub {
 public:
  int32_t level() const { return level_.load(std::memory_order_relaxed); }

  void add(int32_t level, const char* text) {
    Record record = record_of(level, text);
    MutexLock lock(mutex_);
    if (level <= poll_level_) polled_.push(record);
    if (level > std::max(stderr_level_, callback_ ? callback_level_ : DSC_LOG_OFF)) return;
    delivered_.push(std::move(record));
    if (!thread_started_) start_dispatch(Duty::kLog, deliver_all);
    thread_started_ = true;
    dispatch(Duty::kLog);
  }

  void set_callback(dsc_log_callback callback, void* ctx, int32_t level) {
    MutexLock lock(mutex_);
    while (delivering_ && !in_callback()) changed_.wait(mutex_);
    callback_ = callback;
    ctx_ = ctx;
    callback_level_ = level;
    update_level();
  }

  bool read(int32_t level, Record& record) {
    MutexLock lock(mutex_);
    poll_level_ = level;
    update_level();
    if (level == DSC_LOG_OFF) polled_.clear();
    if (polled_.empty()) return false;
    record = polled_.pop();
    return true;
  }

  // At exit: gives the thread a moment to write what stands in the queue.
  void drain() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    MutexLock lock(mutex_);
    while (thread_started_ && (delivering_ || !delivered_.empty()))
      if (changed_.wait_until(mutex_, end) == std::cv_status::timeout) return;
  }

 private:
  void update_level() DSC_REQUIRES(mutex_) {
    level_ = std::max({stderr_level_, callback_ ? callback_level_ : DSC_LOG_OFF, poll_level_});
  }

  // The duty of the dispatch thread.
  static void deliver_all();

  // False when there was nothing to deliver.
  bool deliver_next() {
    mutex_.lock();
    if (delivered_.empty()) {
      mutex_.unlock();
      return false;
    }
    const Record record = delivered_.pop();
    const dsc_log_callback callback = record.level <= callback_level_ ? callback_ : nullptr;
    void* const ctx = ctx_;
    const bool to_stderr = record.level <= stderr_level_;
    delivering_ = true;
    mutex_.unlock();
    deliver(record, callback, ctx, to_stderr);
    mutex_.lock();
    delivering_ = false;
    changed_.notify_all();
    mutex_.unlock();
    return true;
  }

  void print(const Record& record) const {
    const std::string rank = record.rank < 0 ? "" : " rank " + std::to_string(record.rank);
    std::fprintf(stderr, "%s libdsc[%s:%d%s] %s: %s\n", time_text(record.time).c_str(), host_.c_str(),
                 getpid(), rank.c_str(), kLevelNames[record.level], record.text.c_str());
  }

  void deliver(const Record& record, dsc_log_callback callback, void* ctx, bool to_stderr) const {
    if (to_stderr) print(record);
    if (!callback) return;
    CallbackScope scope;
    call_out([&] { callback(ctx, record.level, record.text.c_str()); });
  }

  Mutex mutex_;
  Condition changed_;
  RecordQueue delivered_ DSC_GUARDED_BY(mutex_);
  RecordQueue polled_ DSC_GUARDED_BY(mutex_);
  const std::string host_ = host_name();
  const int32_t stderr_level_ = level_from_environment();
  dsc_log_callback callback_ DSC_GUARDED_BY(mutex_) = nullptr;
  void* ctx_ DSC_GUARDED_BY(mutex_) = nullptr;
  int32_t callback_level_ DSC_GUARDED_BY(mutex_) = DSC_LOG_OFF;
  int32_t poll_level_ DSC_GUARDED_BY(mutex_) = DSC_LOG_OFF;
  bool delivering_ DSC_GUARDED_BY(mutex_) = false;
  bool thread_started_ DSC_GUARDED_BY(mutex_) = false;
  std::atomic<int32_t> level_{level_from_environment()};
};

// Never destroyed: threads may log until the process is gone.
LogHub& hub() {
  static LogHub* const instance = new LogHub;
  return *instance;
}

void LogHub::deliver_all() {
  while (hub().deliver_next()) {
  }
}

__attribute__((destructor)) void drain_log() {
  if (log_enabled(DSC_LOG_ERROR)) hub().drain();
}

}  // namespace

bool log_enabled(int32_t level) noexcept {
  bool wanted = false;
  call_out([&] { wanted = level <= hub().level(); });  // the first call needs memory
  return wanted && !is_forked_child();
}

void log(int32_t level, const char* format, ...) noexcept {
  if (!log_enabled(level)) return;
  char text[kTextBytes];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  std::replace(text, text + std::strlen(text), '\n', ' ');  // a record is one line
  call_out([&] {
    hub().add(level, text);
  });  // out of memory or threads: a record is lost, the caller's work is not
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

void set_log_callback(dsc_log_callback callback, void* ctx, int32_t level) {
  hub().set_callback(callback, ctx, level);
}

bool read_log(int32_t level, std::string& text, int32_t& record_level) {
  Record record;
  if (!hub().read(level, record)) return false;
  text = std::move(record.text);
  record_level = record.level;
  return true;
}

}  // namespace dsc
