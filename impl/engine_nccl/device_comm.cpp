#include "engine_nccl/device_comm.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/work_set.hpp"
#include "control/group.hpp"
#include "engine_nccl/device_memory.hpp"
#include "engine_nccl/device_watch.hpp"

namespace dsc {
namespace {

constexpr int kEndingsMs = 1000;

// True for operations that always run on the host's communicator; for others their buffers decide.
bool is_of_host(const Call& call) {
  return call.kind == OpKind::kMonitoredBarrier || call.kind >= OpKind::kFinalize;
}

}  // namespace

DeviceComm::DeviceComm(std::shared_ptr<Comm> host, std::shared_ptr<DeviceEngine> engine)
    : host_(std::move(host)), engine_(std::move(engine)) {
  nonfinite = host_->nonfinite;
  DeviceWatch::get().add(engine_);
  host_->local_members().group->on_finalize([this] { leave_if_idle(); });
}

DeviceComm::~DeviceComm() {
  host_->local_members().group->on_finalize({});
  leave();
}

void DeviceComm::leave_if_idle() noexcept {
  if (!engine_->has_running()) host_->leave_if_idle();
}

void DeviceComm::run(const Call& call) {
  if (!is_of_host(call) && engine_->takes(call)) return engine_->run(call);
  engine_->note_host_call(call);
  host_->run(call);
}

std::shared_ptr<Work> DeviceComm::start(const Call& call) {
  if (!is_of_host(call) && engine_->takes(call)) return engine_->start(call);
  engine_->note_host_call(call);
  return host_->start(call);
}

// The calls of one batch, sorted by where they run.
struct DeviceComm::Sorted {
  std::vector<Call> host, collectives, messages;
};

DeviceComm::Sorted DeviceComm::sort(const std::vector<Call>& calls) const {
  Sorted sorted;
  for (const Call& call : calls) {
    if (is_of_host(call) || !engine_->takes(call))
      sorted.host.push_back(call);
    else
      (is_message(call) ? sorted.messages : sorted.collectives).push_back(call);
  }
  if (!sorted.host.empty() && sorted.host.size() != calls.size())
    fail(DSC_ERR_INVALID_ARG,
         "the group has %zu operations on host memory and %zu on a device; expected one kind",
         sorted.host.size(), calls.size() - sorted.host.size());
  return sorted;
}

void DeviceComm::run_group(const std::vector<Call>& calls) {
  const Sorted sorted = sort(calls);
  if (!sorted.host.empty() || calls.empty()) {
    for (const Call& call : calls) engine_->note_host_call(call);
    return host_->run_group(calls);
  }
  void* const stream = calls.front().stream;
  start_whole(calls, [&] {
    std::vector<std::shared_ptr<DeviceWork>> messages;
    for (const Call& call : sorted.messages) messages.push_back(engine_->start(call));
    if (!sorted.collectives.empty()) engine_->run_collectives(sorted.collectives, stream);
    const Deadline deadline = Deadline::after_ms(timeout_ms());
    for (const auto& work : messages) engine_->join(*work, stream, deadline);
  });
}

std::shared_ptr<Work> DeviceComm::start_group(const std::vector<Call>& calls) {
  const Sorted sorted = sort(calls);
  if (!sorted.host.empty() || calls.empty()) {
    for (const Call& call : calls) engine_->note_host_call(call);
    return host_->start_group(calls);
  }
  const auto set = std::make_shared<WorkSet>(sorted.messages.size() + 1);
  start_whole(calls, [&] {
    for (const Call& call : sorted.messages) set->add(engine_->start(call));
    if (!sorted.collectives.empty())
      set->add(engine_->start_collectives(sorted.collectives, calls.front().stream));
  });
  return set;
}

// Checks all calls before the first one begins. If one fails nevertheless, the communicator fails, because
// other ranks wait for that call.
void DeviceComm::start_whole(const std::vector<Call>& calls, const std::function<void()>& start) {
  for (const Call& call : calls) engine_->check(call);
  capture(start, [&](const Error& error) {
    if (!revoked()) engine_->fail_quietly(calls.front(), 0, error);
    engine_->note_told();
    throw Error(error);
  });
}

// Enters a collective step into the comparison of calls, so that all ranks must take it at the same place.
void DeviceComm::note(OpKind kind) {
  Call call;
  call.kind = kind;
  engine_->note_host_call(call);
}

void* DeviceComm::allocate_memory(size_t bytes) {
  note(OpKind::kMemAlloc);
  return host_->allocate_memory(bytes);
}

void* DeviceComm::allocate_on_device(size_t bytes) {
  note(OpKind::kMemAlloc);
  return allocate_device_memory(engine_, bytes);
}

void DeviceComm::revoke(const Failure& cause) noexcept {
  host_->revoke(cause);
  engine_->give_up();
}

void DeviceComm::abort() noexcept {
  host_->abort();
  engine_->give_up();
}

void DeviceComm::leave() noexcept {
  if (engine_->has_running()) host_->revoke(engine_->destroyed());
  host_->leave();
  engine_->give_up();
  engine_->await_adopted();
}

void DeviceComm::finalize() {
  if (host_->finalized()) fail(DSC_ERR_STATE, "the communicator was finalized before");
  note(OpKind::kFinalize);
  engine_->finalize();
  // Groups that were left before still let their operations run. This waits for them, because the process
  // may be about to end.
  if (id() == kWorldId)
    DeviceEngine::await_endings(Deadline::after_ms(std::min(timeout_ms() / 2, kEndingsMs)));
  host_->finalize();
}

void DeviceComm::end_world() noexcept {
  host_->end_world();
  engine_->give_up();
}

std::vector<OpStats> DeviceComm::stats() const {
  std::vector<OpStats> all = host_->stats();
  for (OpStats& of : engine_->stats()) {
    of.operation += " (device)";
    all.push_back(std::move(of));
  }
  return all;
}

}  // namespace dsc
