// The meeting of ranks of several hosts: rank 0 serves a store, and the others find it and meet there.
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
  const char* token = nullptr;            // null: from the environment
  std::shared_ptr<Exchange> out_of_band;  // an exchange of the caller; null: launch.told_through decides
};

// The store of one job, which exists as long as its world holds the port.
class JobStore {
 public:
  explicit JobStore(OpenStore open) : open_(std::move(open)) {}
  ~JobStore();
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  // A store that is served here is not closed until `count` other ranks know the result of the meeting, or
  // the deadline has passed.
  void expect_readers(int32_t count, Deadline deadline) noexcept {
    readers_ = count;
    readers_deadline_ = deadline;
  }

  Store& store() const noexcept { return *open_.store; }
  const StoreTarget& target() const noexcept { return *open_.target; }
  // Returns the numeric address with which this host reaches the store.
  std::string own_address(Deadline deadline) const;
  bool is_served_here() const noexcept { return open_.server != nullptr; }

  // From now on, ranks that arrive at the port are asked to try again. Normally only rank 0 has to announce
  // this, because it serves the store. After a failure every rank announces it, because any rank may be the
  // first to return.
  void begin_closing(bool failed) noexcept;
  // All ranks have met to finalize. From now on the end of a connection is not reported, and the port is free
  // for the next world even if groups of this one still exist.
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

// Blocks until all ranks have arrived. Throws what meet_in_store() throws, ADDR_IN_USE (the port is taken),
// AUTH (another token, or no token and an address that is not loopback), CONFIG (no such address), PROTOCOL
// (a different program listens there), TIMEOUT (rank 0 did not arrive), UNSUPPORTED (too many ranks),
// VERSION, and errors of the out-of-band exchange.
Rendezvous meet_through_tcp(const RendezvousSettings& rendezvous, const MeetingSettings& settings);

}  // namespace dsc
