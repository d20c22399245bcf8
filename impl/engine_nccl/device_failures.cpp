#include "engine_nccl/device_failures.hpp"

#include "base/wait.hpp"

namespace dsc {

Failure DeviceFailures::failure() const {
  Failure failure = group_.host->failure();
  if (ending_.stuck() && failure.code != DSC_OK) failure.code = DSC_ERR_BACKEND_STUCK;
  return failure;
}

Failure DeviceFailures::failure_of(const Call& call, uint64_t sequence) const {
  const GroupEngine& host = *group_.host;
  Failure failure = this->failure();
  if (failure.code == DSC_OK || host.state.is_closed()) {
    failure.code = DSC_ERR_REVOKED;
    failure.text = "the communicator was destroyed";
  } else if (!is_group_fatal(failure.code) && failure.rank() != host.rank()) {
    failure.code = DSC_ERR_REVOKED;
  }
  if (ending_.stuck()) {
    failure.code = DSC_ERR_BACKEND_STUCK;
    failure.text +=
        "; ncclCommAbort did not return within 30 s: this process can no longer use the GPU and must exit";
  }
  failure.revoked = true;
  failure.operation = op_kind_name(call.kind);
  failure.sequence = sequence;
  if (std::string_view(failure.text).find(" of group \"") == std::string_view::npos)
    host.state.name_operation(failure, op_kind_name(call.kind), sequence);
  return failure;
}

// The first call after a failure reports its cause, like an operation that was running; later calls report
// REVOKED.
void DeviceFailures::refuse(const Call& call) {
  group_.local().look_at_failure();  // this rank may not have seen the failure yet
  Failure refusal = group_.host->failure();
  const bool is_first = group_.host->state.note_reported();
  if (ending_.stuck())
    refusal.code = DSC_ERR_BACKEND_STUCK;
  else if (!is_first || !is_group_fatal(refusal.code))
    refusal.code = DSC_ERR_REVOKED;
  refusal.revoked = true;
  refusal.text = "the communicator failed earlier: " + refusal.text.str();
  refusal.sequence = 0;  // the text names the operation that failed
  group_.host->state.name_operation(refusal, op_kind_name(call.kind),
                                    group_.published ? group_.latest_call() + 1 : 0);
  throw Error(refusal);
}

void DeviceFailures::refuse_difference(const Call& call, uint64_t sequence, const DifferingCall& difference,
                                       DeviceRecords* records) {
  Failure cause = group_.failure(DSC_ERR_MISMATCH, call.kind, sequence,
                                 "ranks called different operations: " + difference.text);
  cause.ranks = {difference.rank};
  note_reported();
  if (records) records->end(tick_now(), recorded_code(cause.code));
  revoke(cause);
  throw Error(cause);
}

void DeviceFailures::fail_operation(const Call& call, uint64_t sequence, const Error& error,
                                    DeviceRecords* records) {
  note_reported();
  throw Error(take(call, sequence, error, records));
}

void DeviceFailures::fail_quietly(const Call& call, uint64_t sequence, const Error& error) noexcept {
  take(call, sequence, error, nullptr);
}

// Waits a limited time for the host engine to find the failure of a peer. NCCL sees a closed connection
// before the host engine finds that the peer has died, and only the host engine knows why.
void DeviceFailures::await_news(const Error& error) const {
  constexpr auto kRemote = static_cast<int32_t>(NcclResult::remote_error);
  const Deadline deadline{now_ns() + kPeerNewsNs};
  while (error.code() == DSC_ERR_BACKEND && error.failure().native_code == kRemote &&
         !group_.host->revoked() && !deadline.passed())
    sleep_until(Deadline::after_ms(1));
}

Failure DeviceFailures::take(const Call& call, uint64_t sequence, const Error& error,
                             DeviceRecords* records) noexcept {
  Failure failure;
  failure.code = error.code();
  failure.revoked = true;
  call_out([&] {
    await_news(error);
    const GroupEngine& host = *group_.host;
    if (host.revoked()) {  // the group's failure is the cause of this error
      const Failure cause = host.failure();
      const dsc_result_t code = is_group_fatal(cause.code) ? cause.code : DSC_ERR_REVOKED;
      failure = group_.failure(code, call.kind, sequence, cause.text);
      failure.ranks = cause.ranks;
      failure.has_user_ranks = cause.has_user_ranks;
      failure.system_error = cause.system_error;
      failure.native_code = cause.native_code;
      return;
    }
    failure = group_.failure(error.code(), call.kind, sequence, error.what());
    failure.ranks = {host.rank()};
    failure.system_error = error.failure().system_error;
    failure.native_code = error.failure().native_code;
    late_.explain(call, failure);
  });
  if (records) records->end(tick_now(), recorded_code(failure.code));
  revoke(failure);
  return failure;
}

void DeviceFailures::revoke(const Failure& cause) noexcept {
  group_.host->revoke(cause);
  owner_.give_up();
}

// With several hosts this runs on a separate thread. Informing and asking other hosts may take seconds, and
// meanwhile DeviceWatch must supervise other communicators.
void DeviceFailures::fail_group(const CallFailure& found) {
  const auto conclude = [this, found] {
    Failure cause = found.cause;
    call_out([&] { late_.explain(found.call, cause); });
    if (!ending_.finalized() && !group_.host->state.is_closed()) revoke(cause);
  };
  if (group_.on_one_host()) return conclude();
  if (concluding_.exchange(true)) return;
  const auto run = [this, conclude, engine = owner_.keep_alive()] {
    conclude();
    concluding_.store(false);
  };
  if (!call_out([&] { start_thread("dsc-conclude", run).detach(); })) run();
}

void DeviceFailures::fail_group(const NcclCommunicator& communicator, NcclResult error) {
  const int32_t rank = group_.host->rank();
  Failure cause;
  cause.code = DSC_ERR_BACKEND;
  cause.native_code = static_cast<int32_t>(error);
  cause.ranks = {rank};
  cause.set_group(group_.host->id(), group_.host->name());
  cause.revoked = true;
  cause.text.add("NCCL on rank %d reports: %s", rank, communicator.words(error).c_str());
  fail_group({{}, cause});
}

}  // namespace dsc
