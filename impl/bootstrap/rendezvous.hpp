// The meeting of ranks of several hosts. Rank 0 serves a store, and the other ranks find the store and meet
// there.
#pragma once

#include <memory>
#include <string>

#include "base/environment.hpp"
#include "base/mutex.hpp"
#include "bootstrap/launcher.hpp"
#include "bootstrap/meeting.hpp"
#include "store/exchange.hpp"
#include "store/open.hpp"

namespace dsc {

// Settings of meet_through_tcp().
struct RendezvousSettings {
  Launch launch;
  Environment environment;
  const char* token = nullptr;  // null means that it is taken from the environment
  // An exchange that the caller provides; null: launch.told_through decides.
  std::shared_ptr<Exchange> out_of_band;
};

// The store of one job. It exists as long as its world holds the port.
class JobStore {
 public:
  explicit JobStore(OpenStore open) : open_(std::move(open)) {}
  ~JobStore();
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  // If the store is served here, it is not closed until `count` other ranks know the result of the meeting,
  // or the deadline has passed.
  void expect_readers(int32_t count, Deadline deadline) noexcept {
    readers_ = count;
    readers_deadline_ = deadline;
  }

  Store& store() const noexcept { return *open_.store; }
  const StoreTarget& target() const noexcept { return *open_.target; }
  // Returns the numeric address of this host on its connection to the store.
  std::string own_address(Deadline deadline) const;
  bool is_served_here() const noexcept { return open_.server != nullptr; }

  // From now on, ranks that arrive at the port are asked to try again. Normally only rank 0 announces this,
  // because it serves the store. After a failure every rank announces it, because any of them may be the
  // first to start again.
  void begin_closing(bool failed) noexcept;
  // Called when all ranks have met to finalize. From now on, the end of a connection is not reported. The
  // port is free for the next world, even if groups of this world still exist.
  void retire() noexcept;

 private:
  OpenStore open_;
  int32_t readers_ = 0;
  Deadline readers_deadline_ = Deadline::never();
};

// The outcome of a meeting, and the store that was used for it.
struct Rendezvous {
  MeetingResult met;
  std::shared_ptr<JobStore> job;
};

// Blocks until all ranks have arrived. Throws what meet_in_store() throws, and: ADDR_IN_USE if the port is in
// use; AUTH if tokens differ, or if there is no token and the address is not loopback; CONFIG if the address
// does not exist; PROTOCOL if another program listens there; TIMEOUT if rank 0 did not arrive; UNSUPPORTED
// for too many ranks; VERSION; and errors of the out-of-band exchange.
Rendezvous meet_through_tcp(const RendezvousSettings& rendezvous, const MeetingSettings& settings);

}  // namespace dsc
