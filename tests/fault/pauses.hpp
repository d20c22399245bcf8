// Records when ranks could not run and which ranks were accused of a stall. A busy machine may keep a rank
// from running for so long that the accusation is correct. Only then may a rank be accused.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fault {

// The pauses and accusations of all ranks, in memory that is shared with ranks that start later. Each rank
// notes its own pauses.
class Pauses {
 public:
  explicit Pauses(int size);
  ~Pauses();
  Pauses(const Pauses&) = delete;
  Pauses& operator=(const Pauses&) = delete;

  // Any thread may call these two functions. If there are more pauses than fit, every accusation counts as
  // correct.
  void note_pause(int rank, int64_t begin_us, int64_t end_us);
  void note_accusation(int accused, int64_t at_us);
  // Notes the pauses of the calling thread, which are those of its rank, until `over` is true.
  void watch(int rank, const std::atomic<bool>& over);

  // Returns a rank that was accused although it had no pause shortly before, or -1. Only pauses after
  // `since_us` count.
  int accused_without_reason(int64_t since_us = 0) const;
  bool any_accused() const;
  int64_t longest_us() const;

 private:
  struct Noted {
    std::atomic<int64_t> begin_us;
    std::atomic<int64_t> end_us;  // written last
  };
  static constexpr size_t kRoom = 64;
  struct Notes {
    std::atomic<size_t> pauses;
    std::atomic<size_t> accusations;
    Noted pause[kRoom];
    std::atomic<int64_t> accused_us[kRoom];
    std::atomic<int64_t> longest_us;
  };

  bool stood_still(const Notes& notes, int64_t accused_us, int64_t since_us) const;

  const int size_;
  Notes* const notes_;  // one element for each rank
};

// Returns the rank that a line of the log accuses, or -1.
int accused_by(const char* line);

}  // namespace fault
