// Where the records of a job's log lie: in keys one after another, since a key has room for so much only. A
// record that begins behind the limit of its key counts for nothing, so that all readers go on to the next
// key at the same record, and whoever wrote it writes it again.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace dsc {

inline constexpr size_t kJobLogBytes = size_t{256} << 10;

class JobLog {
 public:
  explicit JobLog(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  std::string key() const { return key_of(number_.load()); }
  size_t limit_bytes() const noexcept { return limit_bytes_; }

  // Any thread. `append_to(key, record)` returns the bytes of the key afterwards.
  template <typename AppendTo>
  void append(const std::string& record, AppendTo append_to) {
    for (uint64_t number = number_.load();; ++number)
      if (append_to(key_of(number), record) - record.size() < limit_bytes_) return;
  }

  // The reader has seen all of the present key.
  void go_on() noexcept { number_.fetch_add(1); }

 private:
  static std::string key_of(uint64_t number) { return "control/log/" + std::to_string(number); }

  const size_t limit_bytes_;
  std::atomic<uint64_t> number_{0};
};

}  // namespace dsc
