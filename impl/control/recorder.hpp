// The flight recorder of one group on one rank: its last operations, recorded always. Operations of several
// queues write at once, each its own entry, while any thread reads: without locks, and without allocating.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "control/call.hpp"
#include "dsc/types.h"

namespace dsc {

// How the data of an operation moved.
enum class Algorithm : uint8_t { kNone, kLocal, kDirect, kDivided, kClaimed, kStaged, kZeroCopy };

inline constexpr std::array kAlgorithms = {Algorithm::kLocal,   Algorithm::kDirect, Algorithm::kDivided,
                                           Algorithm::kClaimed, Algorithm::kStaged, Algorithm::kZeroCopy};
static_assert(kAlgorithms.size() == static_cast<size_t>(kAlgorithms.back()), "all but kNone, in their order");

const char* algorithm_name(Algorithm algorithm) noexcept;  // null: there was nothing to move, or not yet
// When it is chosen, and how it moves data; settings of DSC_TUNING by their names. Null as above.
const char* algorithm_rule(Algorithm algorithm) noexcept;

// How long an operation on a device was followed, when that was not to its end. One on a stream of the
// program's leaves nothing to ask for its end; one that was captured runs whenever its graph does.
enum class Detached : uint8_t { kNo, kLaunched, kCaptured };

// What is known of an operation when it is called.
struct RecordedCall {
  OpKind kind = OpKind::kNone;
  int32_t dtype = 0;
  int32_t op = 0;
  int32_t root = -1;  // or the peer of a message
  uint64_t sequence = 0;
  size_t send_bytes = 0;  // of this rank's buffers; 0 where it has none
  size_t recv_bytes = 0;
  int32_t timeout_ms = 0;
  bool on_device = false;  // those are numbered apart, and roots are ranks of Group::on_devices()
};

// An operation as read from the recorder. Times are ticks; 0: not yet.
struct RecordedOperation {
  RecordedCall call;
  uint64_t id = 0;  // operations of the group are counted from 1
  int64_t created = 0;
  int64_t started = 0;
  int64_t met = 0;
  int64_t ended = 0;
  Algorithm algorithm = Algorithm::kNone;
  dsc_result_t result = DSC_OK;  // once it has ended
  Detached detach = Detached::kNo;
};

// Number of the last collective that came so far; 0: none.
struct RecordedProgress {
  uint64_t enqueued = 0;
  uint64_t started = 0;
  uint64_t completed = 0;
};

class Recorder;

// Every field is an atomic of its own, so nobody reads half of one; a reader that finds the same id before
// and after has read one operation. From `started` on the fields are written while it runs, in the order in
// which they stand.
struct alignas(128) RecordEntry {
  std::atomic<uint64_t> id{0};
  std::atomic<int64_t> created{0};
  std::atomic<uint64_t> sequence{0};
  std::atomic<uint64_t> send_bytes{0};
  std::atomic<uint64_t> recv_bytes{0};
  std::atomic<int32_t> dtype{0};
  std::atomic<int32_t> op{0};
  std::atomic<int32_t> root{0};
  std::atomic<int32_t> timeout_ms{0};
  std::atomic<OpKind> kind{OpKind::kNone};
  std::atomic<bool> on_device{false};
  std::atomic<int64_t> started{0};
  std::atomic<int64_t> met{0};
  std::atomic<Algorithm> algorithm{Algorithm::kNone};
  std::atomic<Detached> detach{Detached::kNo};
  std::atomic<dsc_result_t> result{DSC_OK};
  std::atomic<int64_t> ended{0};
};
static_assert(sizeof(RecordEntry) == 128);

// Numbers of a group's latest collectives, and how many operations found no place, on the host or on devices.
struct LatestNumbers {
  std::atomic<uint64_t> enqueued{0};
  std::atomic<uint64_t> started{0};
  std::atomic<uint64_t> completed{0};
  std::atomic<uint64_t> omitted{0};
  bool in_order = true;  // they complete one after another
};

// An operation that runs, written by its queue alone. Without an entry only its number counts. Its times are
// taken by different threads, and a processor may read its counter ahead of the instructions before it, by
// about as long as it waits for what another one wrote: so none is recorded as earlier than the one before.
class Record {
 public:
  Record() noexcept = default;

  void start(int64_t ticks) noexcept {
    if (entry_) entry_->started.store(not_before(ticks), kWrite);
    if (collective_ != 0) latest_numbers_->started.store(collective_, kWrite);
  }
  void meet(int64_t ticks) noexcept {
    if (entry_) entry_->met.store(not_before(ticks), kWrite);
  }
  void move_by(Algorithm algorithm) noexcept {
    if (entry_) entry_->algorithm.store(algorithm, kWrite);
  }
  inline void end(int64_t ticks, dsc_result_t result) noexcept;
  // Nobody will see its end: it gives up its place like one that has ended.
  void detach(Detached how) noexcept {
    if (entry_) entry_->detach.store(how, kWrite);
    entry_ = nullptr;
    collective_ = 0;
  }

 private:
  friend class Recorder;
  static constexpr auto kWrite = std::memory_order_release;
  Record(LatestNumbers& numbers, RecordEntry* entry, uint64_t collective, int64_t created) noexcept
      : latest_numbers_(&numbers), entry_(entry), collective_(collective), latest_(created) {}
  int64_t not_before(int64_t ticks) noexcept { return latest_ = std::max(latest_, ticks); }

  LatestNumbers* latest_numbers_ = nullptr;
  RecordEntry* entry_ = nullptr;  // null when there was no place
  uint64_t collective_ = 0;       // its number; 0 for messages
  int64_t latest_ = 0;            // of its times
};

class Recorder {
 public:
  // Room for so many operations; 0 records nothing.
  explicit Recorder(size_t capacity);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Takes the place of the oldest operation that has ended or was let go of. One that still runs is never
  // given up: it may be what everybody waits for.
  Record open(const RecordedCall& call, int64_t created) noexcept;

  // Collectives on devices that were let go of, from that number on, are known to have failed after all: the
  // first of them with that result if its number is below `struck_below`, all others as REVOKED. The number
  // of the first, or 0. Any thread.
  uint64_t fail_detached(uint64_t from, uint64_t struck_below, int64_t ticks, dsc_result_t result) noexcept;

  // The operations in the order of their ids. One that is being replaced at this moment is left out.
  std::vector<RecordedOperation> read() const;
  RecordedProgress progress(bool on_device = false) const noexcept;
  // Operations for which there was no place, because so many were running, here or there.
  uint64_t omitted(bool on_device = false) const noexcept {
    return (on_device ? on_device_ : on_host_).omitted.load(std::memory_order_relaxed);
  }

 private:
  RecordEntry* claim(uint64_t& id) noexcept;
  static bool read_entry(const RecordEntry& entry, RecordedOperation& operation) noexcept;

  const size_t capacity_;
  const std::unique_ptr<RecordEntry[]> entries_;
  std::atomic<uint64_t> next_{0};
  LatestNumbers on_host_, on_device_;
};

void Record::end(int64_t ticks, dsc_result_t result) noexcept {
  if (result == DSC_OK && collective_ != 0) {
    std::atomic<uint64_t>& completed = latest_numbers_->completed;
    if (latest_numbers_->in_order) {
      completed.store(collective_, kWrite);
    } else {
      uint64_t known = completed.load(std::memory_order_relaxed);
      while (known < collective_ && !completed.compare_exchange_weak(known, collective_, kWrite)) {
      }
    }
  }
  if (!entry_) return;
  entry_->result.store(result, kWrite);
  entry_->ended.store(not_before(ticks), kWrite);
  entry_ = nullptr;  // it may soon be another operation's
}

}  // namespace dsc
