// The handle of an operation that was started and may still be running.
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

  // Returns done(). Without a progress thread, first drives operations.
  virtual bool test() { return done(); }

  // Returns true if the operation succeeded, and false if the deadline passed first. Throws if the operation
  // failed.
  virtual bool wait(Deadline deadline) = 0;

  // Makes a stream of the device wait for the operation. For an operation on host memory, the host waits
  // instead.
  virtual bool wait_on(void*, Deadline deadline) { return wait(deadline); }

  // Returns the sequence number of the operation; 0 if it has none. It is equal on all ranks of the
  // communicator.
  virtual uint64_t sequence() const noexcept { return 0; }

  // Returns the time at which the operation ended, as given by tick_now(); 0 if it is not known.
  virtual int64_t end_ticks() const noexcept { return 0; }

  // Returns the result of the operation. The code is DSC_OK after success, and DSC_IN_PROGRESS while it is
  // running.
  virtual Failure failure() const = 0;

  // Returns a file descriptor that becomes readable when the operation ends. The work owns the descriptor.
  virtual int event_fd() = 0;

  // Calls countdown->complete_one() when the operation ends, or immediately if it has already ended. May be
  // called only once per work.
  virtual void notify(std::shared_ptr<Countdown> countdown) = 0;

  // Called when the caller has released its handle. Closes the descriptor.
  virtual void close_event_fd() noexcept {}
};

}  // namespace dsc
