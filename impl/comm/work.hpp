// The handle of an operation that was started without waiting for it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace dsc {

class Countdown;

class Work {
 public:
  virtual ~Work() = default;

  virtual bool done() const noexcept = 0;

  // Returns done(); in a world without a progress thread it first drives operations.
  virtual bool test() { return done(); }

  // Returns true if the operation succeeded, false if the deadline passed first; throws the operation's
  // failure.
  virtual bool wait(Deadline deadline) = 0;

  // Makes a stream of the device wait for the operation. If it works on host memory, the host waits
  // instead.
  virtual bool wait_on(void*, Deadline deadline) { return wait(deadline); }

  // Returns the sequence number of the operation, equal on all ranks of its communicator; 0 if it has none.
  virtual uint64_t sequence() const noexcept { return 0; }

  // Returns the time stamp of tick_now() at which the operation ended; 0 if that is not known.
  virtual int64_t end_ticks() const noexcept { return 0; }

  // Returns how the operation ended; the code is DSC_OK after success and DSC_IN_PROGRESS while it runs.
  virtual Failure failure() const = 0;

  // Returns a file descriptor that becomes readable on completion. The work owns it.
  virtual int event_fd() = 0;

  // Calls countdown->complete_one() on completion, or at once if the operation is complete. At most once
  // per work.
  virtual void notify(std::shared_ptr<Countdown> countdown) = 0;

  // Called when the caller has released its handle: closes the descriptor.
  virtual void close_event_fd() noexcept {}
};

}  // namespace dsc
