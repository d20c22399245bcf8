// Stream order of a run on a device. Callbacks put their work on the caller's stream, and messages run on
// separate streams. This class orders the two.
#pragma once

#include <memory>
#include <vector>

#include "memory/space.hpp"

namespace dsc {

class DeviceOrder {
 public:
  explicit DeviceOrder(Comm& comm) : space_(Space::of_device(comm)) {}

  // Throws UNSUPPORTED if the stream is being captured in a graph: each run synchronizes the ranks on the
  // host, which a graph cannot replay.
  void check(void* stream) const;

  // Orders all later work on the stream after all earlier runs.
  void begin(void* stream, int32_t buffers);
  // Starts to send after everything that is on the stream so far. The stream does not wait for the message.
  void send(Comm& channel, Call call, int32_t buffer);
  // Receives a message, and orders all later work on the stream after it.
  void receive(Comm& channel, Call call, int32_t buffer);
  // Orders all later work on the stream after the sends from this buffer, so that it may overwrite the
  // buffer.
  void reuse(int32_t buffer);
  // Orders all later work on the stream after the whole run.
  void end();
  // Called after a failure, when the communicators of the run are revoked. Only marks the end of the work on
  // the stream.
  void give_up() noexcept;
  // Waits for the latest run to end. Returns false if it has not ended by the deadline.
  bool wait_idle(Deadline deadline) noexcept;

 private:
  const std::unique_ptr<Space> space_;
  void* stream_ = nullptr;
  // The sends that may still read a buffer, by buffer.
  std::vector<std::vector<std::shared_ptr<Work>>> sending_;
  Mark ended_;  // end of the latest run
};

}  // namespace dsc
