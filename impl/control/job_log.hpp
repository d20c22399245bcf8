// Distributes the records of a job's log over several keys of the store, because the size of a key is
// limited. A record that begins beyond the limit of its key is invalid. All readers then continue with the
// next key, and the writer appends the record there again.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace dsc {

inline constexpr size_t kJobLogBytes = size_t{256} << 10;

// Tracks the current key of the log: records are appended to it and read from it.
class JobLog {
 public:
  explicit JobLog(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  uint64_t number() const noexcept { return number_.load(); }  // number of the current key
  std::string key() const { return key_of(number()); }
  static std::string key_of(uint64_t number) { return "control/log/" + std::to_string(number); }
  size_t limit_bytes() const noexcept { return limit_bytes_; }

  // Appends a record. Any thread may call this. `append_to(key, record)` must return the size of the key in
  // bytes after appending.
  template <typename AppendTo>
  void append(const std::string& record, AppendTo append_to) {
    for (uint64_t number = number_.load();; ++number)
      if (append_to(key_of(number), record) - record.size() < limit_bytes_) return;
  }

  // Continues with the next key. Called when the reader has read all of the current key.
  void go_on() noexcept { number_.fetch_add(1); }

 private:
  const size_t limit_bytes_;
  std::atomic<uint64_t> number_{0};
};

}  // namespace dsc
