// The flight recorder of one group on one rank. It always records the latest operations. Several queues write
// at the same time, each to its own entries, and any thread may read at the same time. Nothing here takes a
// lock or allocates.
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

// How the data of an operation was moved.
enum class Algorithm : uint8_t {
  kNone,
  kLocal,
  kDirect,
  kDivided,
  kClaimed,
  kStaged,
  kSingleCopy,
  kZeroCopy
};

inline constexpr std::array kAlgorithms = {Algorithm::kLocal,   Algorithm::kDirect, Algorithm::kDivided,
                                           Algorithm::kClaimed, Algorithm::kStaged, Algorithm::kSingleCopy,
                                           Algorithm::kZeroCopy};
static_assert(kAlgorithms.size() == static_cast<size_t>(kAlgorithms.back()), "all but kNone, in their order");

const char* algorithm_name(Algorithm algorithm) noexcept;  // null if no data was moved, or not yet
// Explains when the algorithm is chosen and how it moves data, with the names of DSC_TUNING settings. Null in
// the same cases as algorithm_name().
const char* algorithm_rule(Algorithm algorithm) noexcept;

// Why the recorder stopped tracking an operation on a device before its end; kNo if it did not stop. The end
// of an operation on a stream of the program cannot be observed, and a captured operation runs whenever its
// graph is launched.
enum class Detached : uint8_t { kNo, kLaunched, kCaptured };

// The properties of an operation that are known when it is called.
struct RecordedCall {
  OpKind kind = OpKind::kNone;
  int32_t dtype = 0;
  int32_t op = 0;
  int32_t root = -1;  // root, or the peer of a message
  uint64_t sequence = 0;
  size_t send_bytes = 0;  // size of this rank's buffer; 0 if it has none
  size_t recv_bytes = 0;
  int32_t timeout_ms = 0;
  // Operations on devices have separate sequence numbers, and their roots are ranks of Group::on_devices().
  bool on_device = false;
};

// An operation as it is read from the recorder. Times are ticks of tick_now(); 0 means that the event has not
// happened yet.
struct RecordedOperation {
  RecordedCall call;
  uint64_t id = 0;  // number of the operation in the group, from 1
  int64_t created = 0;
  int64_t started = 0;
  int64_t met = 0;
  int64_t ended = 0;
  Algorithm algorithm = Algorithm::kNone;
  dsc_result_t result = DSC_OK;  // valid once the operation has ended
  Detached detach = Detached::kNo;
};

// The sequence number of the last collective in each state; 0 if there is none.
struct RecordedProgress {
  uint64_t enqueued = 0;
  uint64_t started = 0;
  uint64_t completed = 0;
};

class Recorder;

// Every field is atomic, so that no value is torn. A reader that finds the same id before and after reading
// has a consistent entry. `started` and the fields after it are written while the operation runs, in the
// order of their declaration.
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

// The sequence numbers of a group's latest collectives, and the number of operations without an entry. There
// is one such record for operations on the host and one for operations on devices.
struct LatestSequences {
  std::atomic<uint64_t> enqueued{0};
  std::atomic<uint64_t> started{0};
  std::atomic<uint64_t> completed{0};
  std::atomic<uint64_t> omitted{0};
  bool in_order = true;  // whether operations complete in the order of their sequence numbers
};

// Records the progress of a running operation. Only the queue of the operation uses it. Without an entry,
// only the sequence number is updated.
//
// Different threads take the times, and a processor may read its counter before earlier instructions have
// completed. Therefore times are corrected so that none is earlier than the previous one.
class Record {
 public:
  Record() noexcept = default;

  void start(int64_t ticks) noexcept {
    if (entry_) entry_->started.store(not_before(ticks), kWrite);
    if (collective_ != 0) latest_sequences_->started.store(collective_, kWrite);
  }
  void meet(int64_t ticks) noexcept {
    if (entry_) entry_->met.store(not_before(ticks), kWrite);
  }
  void move_by(Algorithm algorithm) noexcept {
    if (entry_) entry_->algorithm.store(algorithm, kWrite);
  }
  inline void end(int64_t ticks, dsc_result_t result) noexcept;
  // Stops tracking an operation whose end cannot be observed. Its entry may then be reused as if the
  // operation had ended.
  void detach(Detached how) noexcept {
    if (entry_) entry_->detach.store(how, kWrite);
    entry_ = nullptr;
    collective_ = 0;
  }

 private:
  friend class Recorder;
  static constexpr auto kWrite = std::memory_order_release;
  Record(LatestSequences& numbers, RecordEntry* entry, uint64_t collective, int64_t created) noexcept
      : latest_sequences_(&numbers), entry_(entry), collective_(collective), latest_(created) {}
  int64_t not_before(int64_t ticks) noexcept { return latest_ = std::max(latest_, ticks); }

  LatestSequences* latest_sequences_ = nullptr;
  RecordEntry* entry_ = nullptr;  // null if no entry was free
  uint64_t collective_ = 0;       // sequence number; 0 for messages
  int64_t latest_ = 0;            // the latest recorded time
};

// A ring of entries for the latest operations of one group.
class Recorder {
 public:
  // Allocates entries for `capacity` operations. If it is 0, nothing is recorded.
  explicit Recorder(size_t capacity);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Takes the entry of the oldest operation that has ended or is no longer tracked. A running operation keeps
  // its entry, because it may be the operation for which all others wait.
  Record open(const RecordedCall& call, int64_t created) noexcept;

  // Marks device collectives that are no longer tracked as failed, from sequence number `from` on. The first
  // of them gets `result` if its sequence number is below `struck_below`. All others get REVOKED. Returns the
  // sequence number of the first one, or 0 if there is none. Any thread may call this.
  uint64_t fail_detached(uint64_t from, uint64_t struck_below, int64_t ticks, dsc_result_t result) noexcept;

  // Returns the operations in the order of their ids. Omits an entry that is being replaced.
  std::vector<RecordedOperation> read() const;
  RecordedProgress progress(bool on_device = false) const noexcept;
  // Returns the number of operations that got no entry because too many were running.
  uint64_t omitted(bool on_device = false) const noexcept {
    return (on_device ? on_device_ : on_host_).omitted.load(std::memory_order_relaxed);
  }

 private:
  RecordEntry* claim(uint64_t& id) noexcept;
  static bool read_entry(const RecordEntry& entry, RecordedOperation& operation) noexcept;

  const size_t capacity_;
  const std::unique_ptr<RecordEntry[]> entries_;
  std::atomic<uint64_t> next_{0};
  LatestSequences on_host_, on_device_;
};

void Record::end(int64_t ticks, dsc_result_t result) noexcept {
  if (result == DSC_OK && collective_ != 0) {
    std::atomic<uint64_t>& completed = latest_sequences_->completed;
    if (latest_sequences_->in_order) {
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
  entry_ = nullptr;  // another operation may soon take the entry
}

}  // namespace dsc
