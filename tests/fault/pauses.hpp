// When ranks were kept from running, and whom others accused of it. A busy machine may stop a rank for so
// long that it is accused with reason: only that excuses an accusation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fault {

// In memory that ranks share which start later; each rank notes its own pauses.
class Pauses {
 public:
  explicit Pauses(int size);
  ~Pauses();
  Pauses(const Pauses&) = delete;
  Pauses& operator=(const Pauses&) = delete;

  // Any thread. More than there is room for count as excused.
  void note_pause(int rank, int64_t begin_us, int64_t end_us);
  void note_accusation(int accused, int64_t at_us);
  // Notes the pauses of the calling thread, and so those of its rank, until `over`.
  void watch(int rank, const std::atomic<bool>& over);

  // A rank that was accused though it had not stood still shortly before; pauses count from `since_us`. -1:
  // none.
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
  Notes* const notes_;  // of each rank
};

// The rank that a line of the log accuses, or -1.
int accused_by(const char* line);

}  // namespace fault
