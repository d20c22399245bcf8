#include "engine_nccl/device_link.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"
#include "engine_nccl/device_failures.hpp"

namespace dsc {
namespace {

constexpr uint64_t kLinkTag = 0x4c494e4b;  // distinguishes the exchange from the user's messages
constexpr std::chrono::milliseconds kPollPeriod{1};
constexpr int64_t kLaterMs = 10'000;

}  // namespace

// The sender makes NCCL's id and sends it to the receiver, as a message on host memory. It counts as the
// first message between the two ranks on host memory.
DeviceLink::DeviceLink(const NcclGroup& group, const NcclEnding& ending, DeviceFailures& failures,
                       const Call& call)
    : group_(group),
      ending_(ending),
      failures_(failures),
      sends_(call.kind == OpKind::kSend),
      peer_(call.root),
      stream_(group.world.nccl.device, group.stream_priority) {
  if (sends_) id_ = make_unique_id(*group.world.nccl.library);
  Call exchange = call_of_bytes(call.kind, call.root, &id_, &id_, sizeof id_);
  exchange.tag = kLinkTag;
  // The exchange gets a longer time-out than the message that waits for it, so that the message times out
  // first and reports which rank is late.
  exchange.timeout_ms =
      static_cast<int32_t>(std::min<int64_t>(int64_t{group.host->timeout_ms()} + kLaterMs, INT32_MAX));
  std::snprintf(exchange.note, sizeof exchange.note, "first message on a device");
  exchange_ = group.host->start(exchange);
}

void DeviceLink::connect(std::shared_ptr<void> engine) {
  start_thread("dsc-link", [this, engine = std::move(engine)] {
    const NcclWait limits = ending_.wait_limits(0);
    capture([&] { make(limits); }, [&](const Error& error) { fail_connection(error); });
    const MutexLock lock(mutex_);
    connected_.notify_all();
  }).detach();
}

// Fails the communicator, which also ends the exchange, and waits until the host engine no longer uses NCCL's
// id.
void DeviceLink::fail_connection(const Error& error) {
  Call message;
  message.kind = sends_ ? OpKind::kSend : OpKind::kRecv;
  message.root = peer_;
  failures_.fail_quietly(message, 1, error);
  capture([&] { exchange_->wait(Deadline::never()); }, [](dsc_result_t, const char*) {});
  const MutexLock lock(mutex_);
  queue_.clear();
}

// Once the communicator is stored, give_up() of the engine finds and ends it. A give_up() that ran earlier is
// detected here.
void DeviceLink::make(const NcclWait& limits) {
  while (!exchange_->wait(Deadline::after_ms(50))) limits.check();
  auto communicator =
      NcclCommunicator::create(group_.world.nccl, {&id_, 1}, 2, sends_ ? 0 : 1, group_.settings, limits);
  {
    const MutexLock lock(communicator_mutex_);
    communicator_ = communicator;
  }
  limits.check();
  const MutexLock lock(mutex_);
  operations_ = std::make_unique<NcclOperations>(std::move(communicator), sends_ ? 0 : 1, 2);
  for (; !queue_.empty(); queue_.pop_front()) put_between_events(*queue_.front());
}

bool DeviceLink::ready() const {
  const MutexLock lock(mutex_);
  return operations_ != nullptr;
}

std::shared_ptr<NcclCommunicator> DeviceLink::communicator() const {
  const MutexLock lock(communicator_mutex_);
  return communicator_;
}

// The peer may not have made its call, or NCCL may be at fault, so the error names no cause.
void DeviceLink::fail_unconnected(const Call& call) {
  fail(DSC_ERR_TIMEOUT, "no connection %s rank %d was established in time",
       call.kind == OpKind::kSend ? "to" : "from", call.root);
}

void DeviceLink::put(const Call& call, CudaStream* stream, const NcclWait& limits) {
  Call message = call;
  message.root = sends_ ? 1 : 0;
  // NCCL's own threads would take this handle for another stream
  const bool elsewhere = stream == kPerThreadStream;
  CudaStream* const used = elsewhere ? stream_.get() : stream;
  const Device& device = group_.device();
  if (elsewhere) order(device, *group_.world.gpu.events, stream, used);
  operations_->enqueue({&message, 1}, used, limits);
  if (elsewhere) order(device, *group_.world.gpu.events, used, stream);
}

void DeviceLink::run(const Call& call, CudaStream* stream, const NcclWait& limits) {
  MutexLock lock(mutex_);
  while (!operations_) {
    connected_.wait_for(mutex_, kPollPeriod);
    limits.check();
    if (!operations_ && limits.deadline.passed()) fail_unconnected(call);
  }
  put(call, stream, limits);
}

void DeviceLink::put_between_events(DeviceWork& work) {
  const Device& device = group_.device();
  const DeviceScope scope(device);
  device.wait(stream_.get(), work.begin_event.get());
  put(work.call(), stream_.get(), ending_.wait_limits(0));
  device.record(work.end_event.get(), stream_.get());
  work.set_launched();
}

void DeviceLink::start(std::shared_ptr<DeviceWork> work) {
  const MutexLock lock(mutex_);
  if (operations_)
    put_between_events(*work);
  else
    queue_.push_back(std::move(work));
}

}  // namespace dsc
