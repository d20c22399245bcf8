// The failure of a group, as its device engine detects and reports it.
#pragma once

#include <atomic>

#include "engine_nccl/device_records.hpp"
#include "engine_nccl/late_calls.hpp"
#include "engine_nccl/nccl_ending.hpp"

namespace dsc {

// An error of NCCL that a peer may have caused is reported only after this time, because until then the host
// engine may find which peer failed.
inline constexpr int64_t kPeerNewsNs = kNsPerSecond;

// NcclEngine owns the object. Any thread may use it.
class DeviceFailures {
 public:
  DeviceFailures(const NcclGroup& group, const NcclEnding& ending, const LateCalls& late, NcclOwner& owner)
      : group_(group), ending_(ending), late_(late), owner_(owner) {}

  // Returns the group's failure, with details that only this rank knows.
  Failure failure() const;
  // Returns the group's failure as the failure of one operation.
  Failure failure_of(const Call& call, uint64_t sequence) const;

  // Refuses a call because the group has failed.
  [[noreturn]] void refuse(const Call& call);
  // Fails the group because this rank found that other ranks made a different call. Its own call does not
  // start.
  [[noreturn]] void refuse_difference(const Call& call, uint64_t sequence, const DifferingCall& difference,
                                      DeviceRecords* records);
  // Fails the group because of an error in a call of this rank, and throws the failure of the call.
  [[noreturn]] void fail_operation(const Call& call, uint64_t sequence, const Error& error,
                                   DeviceRecords* records = nullptr);
  void fail_quietly(const Call& call, uint64_t sequence, const Error& error) noexcept;
  // Fails the group for a cause that this rank found, after other ranks were asked for an explanation.
  void fail_group(const CallFailure& found);
  void fail_group(const NcclCommunicator& communicator, NcclResult error);
  bool concluding() const noexcept { return concluding_.load(); }  // a thread is explaining the cause

  // Notes that a call on this rank has reported the failure.
  void note_reported() noexcept { group_.host->state.note_reported(); }

  // Returns the code with which the flight recorder records an operation that fails now. Only the first
  // failed operation is recorded with the cause. The operations after it never began, so they are recorded as
  // REVOKED.
  dsc_result_t recorded_code(dsc_result_t code) noexcept {
    return cause_recorded_.exchange(true) ? DSC_ERR_REVOKED : code;
  }
  bool cause_recorded() const noexcept { return cause_recorded_.load(); }
  void set_cause_recorded() noexcept { cause_recorded_.store(true); }

 private:
  void await_news(const Error& error) const;
  Failure take(const Call& call, uint64_t sequence, const Error& error, DeviceRecords* records) noexcept;
  void revoke(const Failure& cause) noexcept;

  const NcclGroup& group_;
  const NcclEnding& ending_;
  const LateCalls& late_;
  NcclOwner& owner_;
  std::atomic<bool> cause_recorded_{false};
  std::atomic<bool> concluding_{false};
};

}  // namespace dsc
