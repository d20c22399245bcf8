// The connections from one host to all others of a group, and waiting for what comes over them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "store/exchange.hpp"
#include "transport/channel.hpp"

namespace dsc {

// What one look at a peer gave.
enum class Step {
  kMoved,    // something went on; look again
  kWait,     // the peer has to do something before this host can send what it has for it
  kReceive,  // all that this host had for it is on its way; the peer's own is not here yet
  kOwe,      // this host will have something for the peer when others have sent their part
  kIdle,     // nothing more between the two, but the operation is not complete here
  kDone,
};

// Work of the caller's for the time when data is on its way.
using OverlapHook = std::function<void()>;

class Mesh {
 public:
  // What messages say: "host 1 (rank 4)", or "rank 4".
  enum class Members { kLeaders, kRanks };
  // `members[i]` is the rank that speaks for host i; it owns the host's key in the exchange.
  Mesh(const std::shared_ptr<Transport>& transport, int32_t rank, std::vector<int32_t> members,
       Members of = Members::kLeaders);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int32_t rank() const noexcept { return rank_; }
  int32_t size() const noexcept { return static_cast<int32_t>(members_.size()); }
  TransportChannel& channel(int32_t peer) { return *channels_[static_cast<size_t>(peer)]; }

  // Finds the others through the exchange, under keys that begin with `prefix`, and connects to all.
  void connect(Exchange& exchange, std::string_view prefix, Deadline deadline);

  // For a host that cannot take part: the others hear why when they connect, with its name.
  static void refuse(Exchange& exchange, std::string_view prefix, int32_t rank, const Error& why);

  // Any thread, once made: what runs and what comes later fails with REVOKED.
  void abort(const Error& why) noexcept;

  // Called at least every 50 ms while an operation waits, with the hosts that it waits for; may throw.
  using Check = std::function<void(const std::vector<bool>& awaited)>;
  void set_check(Check check) { check_ = std::move(check); }

  // Runs one operation and, once, what is to be done meanwhile. When it throws, all connections are ended
  // before the error goes on, so that nobody touches its memory any more; later operations are refused.
  void perform(const char* name, const std::function<void()>& operation, OverlapHook overlap = {});

  // Looks at every peer again and again, until all are done in one round. Throws TIMEOUT or PEER_DEAD for
  // peers that keep it waiting; the place of the error holds their indices.
  void run(Deadline deadline, const std::function<Step(int32_t peer)>& look);

 private:
  std::string hello() const;
  void read_hello(int32_t peer, std::string_view text);
  std::optional<std::string> ask(Exchange& exchange, std::string_view prefix, int32_t peer,
                                 Deadline deadline);
  void introduce(Exchange& exchange, std::string_view prefix, Deadline deadline);
  void connect_all(Deadline deadline);
  void check_peers(Deadline deadline);
  bool use_the_time();
  void move_here();
  void move_elsewhere() noexcept;
  void move(uint64_t seen, Deadline deadline);
  void say_farewells(const Error& why);
  void end_all();
  void wait_briefly(int64_t most_ms, bool (*done)(TransportChannel& channel));
  [[noreturn]] void fail_ended(int32_t peer);
  [[noreturn]] void fail_cut_off(int32_t peer);
  [[noreturn]] void fail_dead(int32_t peer, const std::string& why);
  [[noreturn]] void fail_late(const std::vector<bool>& late);
  std::string name_of(int32_t peer) const;

  const int32_t rank_;
  const std::vector<int32_t> members_;
  const Members of_;
  Poller poller_;
  std::vector<std::unique_ptr<TransportChannel>> channels_;  // null at `rank`
  std::vector<std::string> peer_addresses_;
  std::vector<std::string> nonces_;  // by which the connections are known to be the right ones
  const char* doing_ = "";
  Check check_;
  OverlapHook meanwhile_;
  std::optional<Error> failure_;
  std::atomic<bool> revoked_{false};
  std::vector<int32_t> to_move_;  // peers whose connections have something to read, or room to write
};

}  // namespace dsc
