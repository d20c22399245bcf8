// Stream order of a run on a device: callbacks put their work on the caller's stream, and messages run on
// separate streams.
#pragma once

#include <memory>
#include <vector>

#include "memory/space.hpp"

namespace dsc {

class DeviceOrder {
 public:
  explicit DeviceOrder(Comm& comm) : space_(Space::of_device(comm)) {}

  // Throws UNSUPPORTED if the stream is being captured, because each run synchronises ranks on the host.
  void check(void* stream) const;

  // Orders all later work on the stream after all earlier runs.
  void begin(void* stream, int32_t buffers);
  // The message waits for everything on the stream so far; the stream does not wait for it.
  void send(Comm& channel, Call call, int32_t buffer);
  // Orders all later work on the stream after the message.
  void receive(Comm& channel, Call call, int32_t buffer);
  // Orders all later work on the stream after the sends of the buffer's messages; it may then overwrite the
  // buffer.
  void reuse(int32_t buffer);
  // Orders all later work on the stream after the whole run.
  void end();
  // Called when the run and its communicators have failed.
  void give_up() noexcept;
  // Waits for the latest run; false if it has not ended by the deadline.
  bool wait_idle(Deadline deadline) noexcept;

 private:
  const std::unique_ptr<Space> space_;
  void* stream_ = nullptr;
  std::vector<std::vector<std::shared_ptr<Work>>> sending_;  // by buffer
  Mark ended_;                                               // end of the latest run
};

}  // namespace dsc
