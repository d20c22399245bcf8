// A barrier and a table of results for the ranks of one measurement, in a file that all of them map.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace bench {

class Meeting {
 public:
  static constexpr int max_ranks = 64;
  static constexpr int max_variants = 16;

  // Maps the file. Throws std::system_error, and std::invalid_argument if there are too many ranks.
  Meeting(const std::string& path, int ranks);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Returns when all ranks have called it equally often. It spins first, unless there are more ranks than
  // cores, and then yields. Throws std::runtime_error after a minute.
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
  static_assert(std::atomic<uint32_t>::is_always_lock_free, "the counter is shared between processes");

  int ranks_;
  int spins_;
  uint32_t target_ = 0;
  Page* page_ = nullptr;
};

}  // namespace bench
