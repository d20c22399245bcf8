// Messages of one direction between two ranks: a communicator of NCCL's and a stream of their own, so that
// they wait for nothing but each other. Made when the first message is called, by both ends.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>

#include "base/error.hpp"
#include "base/mutex.hpp"
#include "engine_nccl/device_work.hpp"
#include "engine_nccl/operations.hpp"

namespace dsc {

class DeviceEngine;

class DeviceLink {
 public:
  // `call` is the first message. Begins to make the connection; a thread goes on with it.
  DeviceLink(DeviceEngine& engine, const Call& call);
  void connect(std::shared_ptr<DeviceEngine> engine);

  // On the caller's stream; waits until there is a connection.
  void run(const Call& call, CudaStream* stream, const NcclWait& patience);
  // Behind work.begin, which was recorded, as soon as there is a connection.
  void start(std::shared_ptr<DeviceWork> work);
  bool ready() const;
  // The time of a first message is over.
  [[noreturn]] static void fail_unconnected(const Call& call);

  std::shared_ptr<NcclCommunicator> communicator() const;  // null until it is connected

 private:
  void make(const NcclWait& patience);
  void give_up(const Error& error);
  void put(const Call& call, CudaStream* stream, const NcclWait& patience) DSC_REQUIRES(mutex_);
  void put_between_events(DeviceWork& work) DSC_REQUIRES(mutex_);

  DeviceEngine& engine_;
  const bool sends_;
  const int32_t peer_;
  NcclUniqueId id_{};
  std::shared_ptr<Work> exchange_;  // of the id, by the host
  Stream stream_;
  mutable Mutex mutex_;  // held while messages are put on streams
  Condition connected_;
  std::unique_ptr<NcclOperations> operations_ DSC_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<DeviceWork>> queue_ DSC_GUARDED_BY(mutex_);  // until it is connected
  mutable Mutex communicator_mutex_;
  std::shared_ptr<NcclCommunicator> communicator_ DSC_GUARDED_BY(communicator_mutex_);
};

}  // namespace dsc
