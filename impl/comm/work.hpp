// An operation that was started and not waited for.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.hpp"
#include "control/failure.hpp"

namespace dsc {

class Countdown;

class Work {
 public:
  virtual ~Work() = default;

  virtual bool done() const noexcept = 0;

  // As done(), after a step of progress in a world that has no thread for it.
  virtual bool test() { return done(); }

  // True when the operation succeeded, false when the deadline passed first; throws the operation's failure.
  virtual bool wait(Deadline deadline) = 0;

  // Makes a stream of the device wait for it; of work on host memory, the host waits.
  virtual bool wait_on(void*, Deadline deadline) { return wait(deadline); }

  // Of the operation, equal on all ranks of its communicator; 0 if nothing was sent for it.
  virtual uint64_t number() const noexcept { return 0; }

  // How it ended; code is DSC_OK after success and DSC_IN_PROGRESS while it runs.
  virtual Failure failure() const = 0;

  // A descriptor that becomes readable on completion; owned by the work.
  virtual int event_fd() = 0;

  // Tells the countdown when it completes, or at once. Once per work.
  virtual void notify(std::shared_ptr<Countdown> countdown) = 0;

  // The caller has given its handle back: closes that descriptor.
  virtual void close_event_fd() noexcept {}
};

}  // namespace dsc
