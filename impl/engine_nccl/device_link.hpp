// Messages of one direction between two ranks. They have their own NCCL communicator and stream, so that they
// wait only for each other. Both ends make the link at their first message.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>

#include "base/error.hpp"
#include "base/mutex.hpp"
#include "engine_nccl/device_work.hpp"
#include "engine_nccl/nccl_group.hpp"
#include "engine_nccl/operations.hpp"

namespace dsc {

class DeviceFailures;
class NcclEnding;

class DeviceLink {
 public:
  // `call` is the first message. The constructor begins to make the connection; connect() continues on a
  // separate thread.
  DeviceLink(const NcclGroup& group, const NcclEnding& ending, DeviceFailures& failures, const Call& call);
  void connect(std::shared_ptr<void> engine);  // the thread keeps the engine alive
  // Ends the connection attempt and fails the communicator.
  void fail_connection(const Error& error);

  // Runs a message on the caller's stream. Waits until the ranks are connected.
  void run(const Call& call, CudaStream* stream, const NcclWait& limits);
  // Starts a message as soon as the ranks are connected. The message is ordered after work.begin_event, which
  // must be recorded.
  void start(std::shared_ptr<DeviceWork> work);
  bool ready() const;
  // Throws TIMEOUT for a message whose ranks were not connected in time.
  [[noreturn]] static void fail_unconnected(const Call& call);

  std::shared_ptr<NcclCommunicator> communicator() const;  // null until it is connected

 private:
  void make(const NcclWait& limits);
  void put(const Call& call, CudaStream* stream, const NcclWait& limits) DSC_REQUIRES(mutex_);
  void put_between_events(DeviceWork& work) DSC_REQUIRES(mutex_);

  const NcclGroup& group_;
  const NcclEnding& ending_;
  DeviceFailures& failures_;
  const bool sends_;
  const int32_t peer_;
  NcclUniqueId id_{};
  std::shared_ptr<Work> exchange_;  // transfer of id_ over the host engine
  Stream stream_;
  mutable Mutex mutex_;  // held while messages are put on streams
  Condition connected_;
  std::unique_ptr<NcclOperations> operations_ DSC_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<DeviceWork>> queue_ DSC_GUARDED_BY(mutex_);  // waiting for the connection
  mutable Mutex communicator_mutex_;
  std::shared_ptr<NcclCommunicator> communicator_ DSC_GUARDED_BY(communicator_mutex_);
};

}  // namespace dsc
