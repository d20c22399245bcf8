// A record in shared memory. Its owner overwrites it from time to time, and other processes may read it at
// any moment.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dsc {

// The record consists of its number (0: empty) and its payload in words. The number is cleared before the
// payload changes. A reader that finds the same number before and after reading therefore has a consistent
// record.
class SharedRecord {
 public:
  static constexpr size_t bytes(size_t payload_words) noexcept {
    return (1 + payload_words) * sizeof(uint64_t);
  }

  SharedRecord(std::byte* memory, size_t payload_words) noexcept
      : words_(reinterpret_cast<std::atomic<uint64_t>*>(memory)), payload_words_(payload_words) {}

  uint64_t number() const noexcept { return words_[0].load(std::memory_order_seq_cst); }
  bool shows(uint64_t number) const noexcept { return this->number() == number; }

  // Only the owner may write.
  void write(uint64_t number, const void* payload) noexcept {
    words_[0].store(0, std::memory_order_relaxed);
    for (size_t i = 0; i < payload_words_; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, static_cast<const std::byte*>(payload) + i * sizeof word, sizeof word);
      words_[1 + i].store(word, std::memory_order_release);
    }
    words_[0].store(number, std::memory_order_seq_cst);
  }

  // Returns false if the record does not have this number, or if it was overwritten during the reading.
  bool read(uint64_t number, void* payload) const noexcept {
    if (!shows(number)) return false;
    for (size_t i = 0; i < payload_words_; ++i) {
      const uint64_t word = words_[1 + i].load(std::memory_order_acquire);
      std::memcpy(static_cast<std::byte*>(payload) + i * sizeof word, &word, sizeof word);
    }
    return shows(number);
  }

 private:
  std::atomic<uint64_t>* words_;
  size_t payload_words_;
};

}  // namespace dsc
