#include "engine_nccl/device_launches.hpp"

#include <algorithm>

#include "comm/transfer.hpp"
#include "comm/work_set.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

CudaStream* stream_of(const Call& call) { return static_cast<CudaStream*>(call.stream); }

}  // namespace

std::optional<std::string> DeviceLaunches::unsupported_reason(const Call& call) const {
  if (!group_.communicator && call.prescale != 1) return "a group of one rank cannot scale the input";
  return dsc::unsupported_reason(group_.world.nccl, call);
}

void DeviceLaunches::check_usable(const Call& call) {
  const GroupEngine& host = *group_.host;
  if (ending_.finalized() || host.state.is_closed()) {
    Failure refusal = Error(DSC_ERR_STATE, "the communicator was finalized or destroyed").failure();
    host.state.name_operation(refusal, op_kind_name(call.kind), 0);
    throw Error(refusal);
  }
  if (host.revoked() || ending_.begun()) failures_.refuse(call);
  if (const auto reason = unsupported_reason(call))
    fail(DSC_ERR_UNSUPPORTED, "%s(%s) on a device: %s", op_kind_name(call.kind), dtype_name(call.dtype),
         reason->c_str());
  const Transfer transfer(call, host.rank(), host.size());
  check_aligned(call, transfer.send_bytes, transfer.recv_bytes);
  if (call.steps || (call.columns && group_.communicator)) load_kernels(call);
}

// Packing columns and running steps needs kernels. They are loaded before other ranks learn of the call,
// because loading may fail.
void DeviceLaunches::load_kernels(const Call& call) const {
  KernelStore& kernels = *group_.world.gpu.kernels;
  if (kernels.is_loaded()) return;
  const DeviceScope scope(group_.device());
  if (is_capturing(group_.device(), stream_of(call)))
    fail(DSC_ERR_STATE,
         "%s needs kernels, which cannot be loaded during a stream capture; expected one such call before "
         "the capture",
         op_kind_name(call.kind));
  kernels.get();
}

// Publishes the calls to the other ranks and enters them into the flight recorder. Returns the last sequence
// number.
uint64_t DeviceLaunches::publish(std::span<const Call> calls, DeviceRecords& records) {
  records.expect(calls.size());
  const int64_t now = tick_now();
  const auto& published = group_.published;
  uint64_t sequence = 0;
  for (const Call& call : calls) {
    std::optional<DifferingCall> difference;
    if (published) {
      difference = is_message(call.kind) ? published->publish_message(call) : published->publish(call, true);
      sequence = is_message(call.kind) ? published->latest_message(call) : published->latest();
    } else {
      sequence = ++alone_calls_;
    }
    records.add(group_.local().recorder().open(recorded_on_device(call, sequence, *group_.host), now));
    if (difference) failures_.refuse_difference(call, sequence, *difference, &records);
  }
  return sequence;
}

bool DeviceLaunches::captures(CudaStream* stream) {
  const DeviceScope scope(group_.device());
  if (!is_capturing(group_.device(), stream)) return false;
  ending_.note_graph();
  return true;
}

// Makes a work that only DeviceWatch knows. The published calls show neither the calls of ranks on other
// hosts nor whether a message arrives, so DeviceWatch must see whether this operation ends.
std::shared_ptr<DeviceWork> DeviceLaunches::make_untracked(const Call& call, CudaStream* stream) {
  auto work = works_.make(call, stream, false);
  work->untracked = true;
  return work;
}

void DeviceLaunches::add_untracked(std::shared_ptr<DeviceWork> untracked, uint64_t sequence) {
  untracked->set_sequence(sequence);
  untracked->set_launched();
  works_.add(std::move(untracked));
}

// Adds the call to the statistics, with times of 0 because only the device knows them.
void DeviceLaunches::count(const Call& call) noexcept {
  const Transfer transfer(call, group_.host->rank(), group_.host->size());
  stats_.add(call.kind, std::max(transfer.send_bytes, transfer.recv_bytes), 0, 0);
}

void DeviceLaunches::run_collectives(std::span<const Call> calls, CudaStream* stream) {
  for (const Call& call : calls) check_usable(call);
  // The functions called below open scopes of the same device. Inside this scope they cost nothing.
  const DeviceScope scope(group_.device());
  const bool captured = captures(stream);
  const auto untracked = group_.on_one_host() || captured ? nullptr : make_untracked(calls[0], stream);
  DeviceRecords unfollowed;
  DeviceRecords& records = untracked ? untracked->records : unfollowed;
  const uint64_t sequence = publish(calls, records);
  may_be_busy_ = true;
  capture(
      [&] {
        collectives_.put(calls, stream);
        if (untracked) group_.device().record(untracked->end_event.get(), stream);
      },
      [&](const Error& error) { failures_.fail_operation(calls[0], sequence, error, &records); });
  records.start(tick_now());
  for (const Call& call : calls) count(call);
  if (!captured) late_.note_launched(sequence);
  if (untracked) return add_untracked(untracked, sequence);
  records.detach(captured ? Detached::kCaptured : Detached::kLaunched);
  // If the communicator began to end before this call was added, its end has not recorded the call.
  if (ending_.begun()) works_.record_uncalled();
}

std::shared_ptr<DeviceWork> DeviceLaunches::start_collectives(std::span<const Call> calls,
                                                              CudaStream* stream) {
  for (const Call& call : calls) check_usable(call);
  auto work = works_.make(calls[0], stream, captures(stream));
  const uint64_t sequence = publish(calls, work->records);
  work->set_sequence(sequence);
  capture(
      [&] {
        const Device& device = group_.device();
        const DeviceScope scope(device);
        device.wait(collectives_.stream(), work->begin_event.get());
        collectives_.put(calls, collectives_.stream());
        device.record(work->end_event.get(), collectives_.stream());
      },
      [&](const Error& error) { failures_.fail_operation(calls[0], sequence, error, &work->records); });
  work->records.start(tick_now());
  work->set_launched();
  for (const Call& call : calls) count(call);
  if (!work->captured) late_.note_launched(sequence);
  works_.add(work);
  return work;
}

void DeviceLaunches::run(const Call& call) {
  CudaStream* const stream = stream_of(call);
  if (!is_message(call.kind)) return run_collectives({&call, 1}, stream);
  check_usable(call);
  const DeviceScope scope(group_.device());
  const bool captured = captures(stream);
  if (captured) links_.expect_ready(call);
  const auto untracked = captured ? nullptr : make_untracked(call, stream);
  DeviceRecords of_graph;
  DeviceRecords& records = untracked ? untracked->records : of_graph;
  const uint64_t sequence = publish({&call, 1}, records);
  capture(
      [&] {
        links_.get(call).run(call, stream, ending_.wait_limits(call.timeout_ms));
        if (untracked) group_.device().record(untracked->end_event.get(), stream);
      },
      [&](const Error& error) { failures_.fail_operation(call, sequence, error, &records); });
  records.start(tick_now());
  count(call);
  if (untracked) return add_untracked(untracked, sequence);
  records.detach(Detached::kCaptured);
}

std::shared_ptr<DeviceWork> DeviceLaunches::start(const Call& call) {
  CudaStream* const stream = stream_of(call);
  if (!is_message(call.kind)) return start_collectives({&call, 1}, stream);
  check_usable(call);
  auto work = works_.make(call, stream, captures(stream));
  if (work->captured) links_.expect_ready(call);
  const uint64_t sequence = publish({&call, 1}, work->records);
  work->set_sequence(sequence);
  work->records.start(tick_now());  // before add(), which shows the work to other threads
  if (!work->captured) works_.add(work);
  DeviceRecords* const unwatched = work->captured ? &work->records : nullptr;
  capture([&] { links_.get(call).start(work); },
          [&](const Error& error) { failures_.fail_operation(call, sequence, error, unwatched); });
  if (work->captured) works_.add(work);
  count(call);
  return work;
}

// Checks all calls before the first one begins. If one still fails, the communicator fails, because other
// ranks wait for that call.
template <typename Start>
void DeviceLaunches::start_whole(std::span<const Call> calls, const Start& start) {
  for (const Call& call : calls) check_usable(call);
  capture(start, [&](const Error& error) {
    if (!group_.host->revoked()) failures_.fail_quietly(calls.front(), 0, error);
    failures_.note_reported();
    throw Error(error);
  });
}

void DeviceLaunches::run_batch(std::span<const Call> calls) {
  CudaStream* const stream = stream_of(calls.front());
  start_whole(calls, [&] {
    std::vector<std::shared_ptr<DeviceWork>> messages;
    std::vector<Call> collectives;
    for (const Call& call : calls)
      if (is_message(call.kind))
        messages.push_back(start(call));
      else
        collectives.push_back(call);
    if (!collectives.empty()) run_collectives(collectives, stream);
    const Deadline deadline = Deadline::after_ms(group_.host->timeout_ms());
    for (const auto& work : messages) join(*work, stream, deadline);
  });
}

std::shared_ptr<Work> DeviceLaunches::start_batch(std::span<const Call> calls) {
  const auto set = std::make_shared<WorkSet>(calls.size());
  start_whole(calls, [&] {
    std::vector<Call> collectives;
    for (const Call& call : calls)
      if (is_message(call.kind))
        set->add(start(call));
      else
        collectives.push_back(call);
    if (!collectives.empty()) set->add(start_collectives(collectives, stream_of(calls.front())));
  });
  return set;
}

// Makes a stream wait for a message. The calling thread only waits until the message is on the message's own
// stream.
void DeviceLaunches::join(DeviceWork& message, CudaStream* stream, Deadline deadline) {
  if (message.wait_on(stream, deadline)) return;
  capture([&] { DeviceLink::fail_unconnected(message.call()); },
          [&](const Error& error) { failures_.fail_operation(message.call(), message.sequence(), error); });
}

}  // namespace dsc
