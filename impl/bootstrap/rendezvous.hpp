// Ranks of several hosts: rank 0 serves a store, the others find it, and all meet there.
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

struct RendezvousSettings {
  Launch launch;
  Environment environment;
  const char* token = nullptr;        // null: the environment's
  std::shared_ptr<Exchange> carrier;  // of the caller's; null: what launch.told_through says
};

// The store of one job, as long as its world holds the port.
class JobStore {
 public:
  explicit JobStore(OpenStore open) : open_(std::move(open)) {}
  ~JobStore();
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  // A store that is served here does not end before so many others know how the meeting ended.
  void expect_readers(int32_t count) noexcept { readers_ = count; }

  Store& store() const noexcept { return *open_.store; }
  const StoreTarget& target() const noexcept { return *open_.target; }
  // Under which this host reaches the store, as a number.
  std::string own_address(Deadline deadline) const;
  bool is_served_here() const noexcept { return open_.server != nullptr; }

  // Whoever comes to the port from now on is asked to come again. Only rank 0, which serves the store, needs
  // to say so, but of a world that failed each rank: it may be the first to come again.
  void begin_closing(bool failed) noexcept;
  // All have met for the end: whose connection ends from now on is nobody's news.
  void drop_wills() noexcept;

 private:
  OpenStore open_;
  int32_t readers_ = 0;
};

struct Rendezvous {
  MeetingResult met;
  std::shared_ptr<JobStore> job;
};

// Blocks until all ranks came. Besides what meet_in_store() throws: ADDR_IN_USE (the port is taken), AUTH (no
// token, and an address that is not loopback; another token), CONFIG (no such address), PROTOCOL (a stranger
// listens there), TIMEOUT (rank 0 did not come), UNSUPPORTED (too many ranks), VERSION, and what a carrier
// throws.
Rendezvous meet_through_tcp(const RendezvousSettings& rendezvous, const MeetingSettings& settings);

}  // namespace dsc
