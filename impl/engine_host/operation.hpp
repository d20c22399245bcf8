// One operation as a state machine. It never blocks, so one thread can drive many operations.
#pragma once

#include <algorithm>
#include <optional>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/process_guard.hpp"
#include "control/group.hpp"
#include "dtype/reduce.hpp"

namespace dsc {

// kMoved: the operation made progress and can continue immediately. It returned only because each step is
// bounded, so that other operations can run.
enum class Progress { kPending, kMoved, kDone, kFailed };

// While such an object exists, this rank is published as busy with work that other members wait for.
class Busy {
 public:
  explicit Busy(Group& group) noexcept : group_(group) { group_.show_busy(true); }
  ~Busy() { group_.show_busy(false); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Group& group_;
};

// Returns how often a rank checks for the others before it first pauses, in a small operation. Ranks that
// call at the same time have usually arrived by then, unless they share a processor. A pause would take a
// considerable part of the time of such an operation.
inline int eager_looks(const Group& group) noexcept { return group.host().spins() > 0 ? 64 : 1; }

class Operation {
 public:
  // The call must outlive the operation.
  Operation(Group& group, const Call& call, uint64_t sequence) noexcept
      : group_(group), call_(call), sequence_(sequence) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Publishes this rank's part if that needs no waiting, so that other ranks need not wait for this rank's
  // progress thread. Does nothing if the operation has already begun.
  virtual void enter() {}

  // Runs a bounded step. After kDone or kFailed no rank accesses the buffers.
  virtual Progress step() = 0;

  // Publishes an operation that only the calling thread knows, as enter() does. It may be called before
  // create(), so that the operation is recorded while the published data travels to the other ranks.
  void publish() noexcept {}

  // A cheap check for threads that spin. If it returns false, step() could only return kPending.
  bool may_step() noexcept { return true; }

  // Called after the group has failed: ends this operation as soon as no rank accesses its buffers.
  virtual Progress depart() = 0;

  // Enters the operation, which was just called, into the recorder.
  void create(int64_t ticks, int32_t timeout_ms) noexcept;
  // Called when the operation becomes the first of its queue: its time-out starts.
  void start(int64_t ticks, int32_t timeout_ms) noexcept;
  // Records the end of the operation.
  void end(int64_t ticks, dsc_result_t result) noexcept { record_.end(ticks, result); }
  // Called regularly while the operation is pending. Logs late ranks, and fails the group if the time-out has
  // passed or a missing member has left.
  void look_at_clock() noexcept;
  // Calls look_at_clock() at most every few milliseconds, for threads that drive operations and never sleep.
  void glance_at_clock() noexcept;

  const Call& call() const noexcept { return call_; }
  uint64_t sequence() const noexcept { return sequence_; }
  // After kFailed: returns the group's first cause, which names the operation that failed first, or the
  // non-finite element.
  Failure failure() const noexcept;
  int64_t started_ticks() const noexcept { return started_ticks_; }
  int64_t elapsed_ns() const noexcept {
    return started_ticks_ == 0 ? 0 : ticks_to_ns(tick_now() - started_ticks_);
  }
  int64_t met_ticks() const noexcept { return met_ticks_; }  // when all members had arrived, or 0
  int64_t end_ticks() const noexcept { return ends_when_met_ ? met_ticks_ : tick_now(); }
  size_t bytes() const noexcept { return std::max(send_bytes_, recv_bytes_); }
  const NonFinite& found() const noexcept { return found_; }  // set only if the call asked for the check

 protected:
  // True if the member has not arrived yet.
  virtual bool misses(int member) const noexcept = 0;
  // True if the member has arrived and may be the reason why the others wait.
  virtual bool suspects(int member) const noexcept {
    return group_.is_busy(member) || group_.is_silent(member);
  }

  // Fails the group with this operation as its cause.
  void revoke(dsc_result_t code, const RankList& ranks, std::string_view text) noexcept;
  // Ends only this operation. All ranks find the same result, so the group remains usable.
  Progress fail_nonfinite() noexcept {
    is_nonfinite_ = true;
    return Progress::kFailed;
  }
  // Fails the group because the code that drives this operation threw.
  friend void fail_operation(Operation& operation, dsc_result_t code, const char* text) noexcept;

  void met() noexcept {
    met_ticks_ = tick_now();
    record_.meet(met_ticks_);
  }
  // Declares that the operation ends as soon as all members have arrived. The clock is then read only once,
  // for the arrival and for the end.
  void ends_when_met() noexcept { ends_when_met_ = true; }
  void move_by(Algorithm algorithm) noexcept { record_.move_by(algorithm); }
  void set_bytes(size_t send_bytes, size_t recv_bytes) noexcept {  // sizes of this rank's buffers
    send_bytes_ = send_bytes;
    recv_bytes_ = recv_bytes;
  }

  Group& group_;
  const Call& call_;
  const uint64_t sequence_;
  NonFinite found_;

 private:
  int first_departed() const noexcept;
  void time_out(int64_t elapsed) noexcept;
  std::string describe_time_out(std::vector<int32_t>& late, int64_t elapsed) const;
  struct Chain {
    std::vector<int32_t> ranks;
    bool is_circle = false;
  };
  Chain chain() const;
  std::string describe_waits(std::span<const int32_t> ranks) const;
  std::string describe_chain(std::vector<int32_t>& late, int64_t elapsed) const;
  void report_late(int64_t elapsed);
  std::vector<int32_t> missing() const;
  std::string describe_ranks(const std::vector<int32_t>& ranks) const;
  std::string describe_latest(const std::vector<int32_t>& ranks) const;

  size_t send_bytes_ = 0;
  size_t recv_bytes_ = 0;
  Record record_;
  int64_t timeout_ns_ = 0;
  int64_t started_ticks_ = 0;
  int64_t met_ticks_ = 0;
  int64_t looked_ticks_ = 0;  // when look_at_clock() last ran
  bool reported_late_ = false;
  bool is_nonfinite_ = false;
  bool ends_when_met_ = false;
};

}  // namespace dsc
