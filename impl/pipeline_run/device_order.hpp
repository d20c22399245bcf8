// The order of a run on a device: the caller's stream, on which the callbacks put their work, and messages
// beside it.
#pragma once

#include <memory>
#include <vector>

#include "comm/comm.hpp"
#include "device/context.hpp"

namespace dsc {

class DeviceOrder {
 public:
  explicit DeviceOrder(const DeviceContext& context) : context_(context) {}

  // Throws UNSUPPORTED while the stream is captured: ranks meet on the host in each run.
  static void check(const DeviceContext& context, void* stream);

  // What comes on the stream now is behind all earlier runs.
  void begin(void* stream, int32_t buffers);
  // The message takes what is on the stream by now; the stream goes on.
  void send(Comm& channel, Call call, int32_t buffer);
  // What comes on the stream afterwards has the message.
  void receive(Comm& channel, Call call, int32_t buffer);
  // What comes on the stream afterwards may write into the buffer: its messages have gone.
  void reuse(int32_t buffer);
  // Behind everything: what comes on the stream is after the run.
  void end();
  // The run has failed, and its communicators with it.
  void give_up() noexcept;
  // False when the latest run is still going on after the deadline.
  bool settle(Deadline deadline) noexcept;

 private:
  void mark_end();

  const DeviceContext context_;
  CudaStream* stream_ = nullptr;
  std::vector<std::vector<std::shared_ptr<Work>>> sending_;  // by buffer
  PooledEvent ended_;                                        // of the latest run
};

}  // namespace dsc
