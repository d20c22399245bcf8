// A barrier and a table of results for the ranks of one measurement, in a file that all of them map.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "waiting.hpp"

namespace bench {

// Maps a part of the file that all ranks of a measurement share. Throws std::system_error.
void* map_shared(const std::string& path, size_t offset, size_t bytes);

class Meeting {
 public:
  static constexpr int max_ranks = 64;
  static constexpr int max_variants = 16;
  static constexpr size_t file_bytes = 16 << 10;  // an engine may use the rest of the file

  // Maps the file. Throws std::system_error, and std::invalid_argument if there are too many ranks.
  Meeting(const std::string& path, int ranks);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Returns when all ranks have called it equally often. Throws std::runtime_error after a minute.
  void wait();

  // The last repetition, counted from 0. Rank 0 sets it before a wait(), and the other ranks read it after
  // that wait().
  void set_last_repetition(int repetition) {
    page_->last_repetition.store(repetition, std::memory_order_relaxed);
  }
  int last_repetition() const { return page_->last_repetition.load(std::memory_order_relaxed); }

  // The result of a rank. Other ranks may read it after a wait().
  double& result(int variant, int rank) { return page_->results[variant][rank]; }

 private:
  struct Page {
    alignas(64) std::atomic<uint32_t> arrived;
    alignas(64) std::atomic<int32_t> last_repetition;
    alignas(64) double results[max_variants][max_ranks];
  };
  static_assert(sizeof(Page) <= file_bytes);
  static_assert(std::atomic<uint32_t>::is_always_lock_free, "the counter is shared between processes");

  int ranks_;
  Waiting waiting_;
  uint32_t target_ = 0;
  Page* page_ = nullptr;
};

}  // namespace bench
