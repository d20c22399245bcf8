// The connections from one host to all other hosts of a group, and the loop in which an operation waits for
// these hosts.
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

// The result of checking one peer in Connections::run().
enum class Step {
  kMoved,    // there was progress; the peer must be checked again
  kWait,     // this host cannot send the rest of its data before the peer has acted
  kReceive,  // all data of this host is on its way, but that of the peer has not arrived
  kOwe,      // this host must send more to the peer, after it has received data from other hosts
  kIdle,     // nothing remains to do with this peer, but the operation is not complete on this host
  kDone,
};

// Work of the caller that runs while data is being transferred.
using OverlapHook = std::function<void()>;

// One thread at a time may call these functions. Any thread may call the functions that abort.
class Connections {
 public:
  // How messages name a member: "host 1 (rank 4)" or "rank 4".
  enum class Members { kLeaders, kRanks };
  // `members[i]` is the rank that represents host i. It owns the key of that host in the exchange.
  Connections(const std::shared_ptr<Transport>& transport, int32_t rank, std::vector<int32_t> members,
              Members of = Members::kLeaders);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  int32_t rank() const noexcept { return rank_; }
  int32_t size() const noexcept { return static_cast<int32_t>(members_.size()); }
  TransportChannel& channel(int32_t peer) { return *channels_[static_cast<size_t>(peer)]; }

  // Finds the other hosts through the exchange, under keys that begin with `prefix`, and connects to all of
  // them.
  void connect(Exchange& exchange, std::string_view prefix, Deadline deadline);

  // Called by a host that cannot take part. connect() of the other hosts then throws this error with the name
  // of the host.
  static void refuse(Exchange& exchange, std::string_view prefix, int32_t rank, const Error& why);

  // Makes the current operation and all later ones fail with REVOKED. Any thread may call this.
  void abort(const Failure& why) noexcept;
  // The two halves of abort(), for callers that abort several groups. The first half does not block. The
  // second half waits until the cause is delivered or the deadline has passed, and then ends the connections.
  void begin_abort(const Failure& why) noexcept;
  void finish_abort(Deadline deadline) noexcept;
  // Returns the deadline of an abort that begins now.
  static Deadline abort_deadline() noexcept;

  // While an operation waits, the check is called at least every 50 ms, with the hosts for which the
  // operation waits. It may throw.
  using Check = std::function<void(const std::vector<bool>& awaited)>;
  void set_check(Check check) { check_ = std::move(check); }

  // Runs one operation. Runs `overlap` once, if possible while data is being transferred. If the operation
  // throws, all connections are ended first, so that nothing accesses its memory afterwards. Later operations
  // are refused.
  void perform(const char* name, const std::function<void()>& operation, OverlapHook overlap = {});

  // Repeatedly calls look() for every peer, until one round returns kDone for all. Throws TIMEOUT or
  // PEER_DEAD for peers that did not respond; `ranks` of the error are their indices.
  void run(Deadline deadline, const std::function<Step(int32_t peer)>& look);

 private:
  std::string hello() const;
  void read_hello(int32_t peer, std::string_view text);
  std::optional<Error> repeat(Deadline deadline, const std::vector<bool>& awaited,
                              const std::function<void(Deadline slice)>& request);
  void exchange_hellos(Exchange& exchange, std::string_view prefix, Deadline deadline);
  void connect_all(Deadline deadline);
  void check_peers(Deadline deadline);
  bool run_overlap();
  void take_over_polling();
  void hand_back_polling() noexcept;
  void move(uint64_t seen, Deadline deadline);
  void send_abort(const Failure& why) noexcept;
  void await_abort_sent(Deadline deadline) noexcept;
  void end_all();
  void wait_briefly(Deadline deadline, bool (*done)(TransportChannel& channel)) noexcept;
  [[noreturn]] void fail_ended(int32_t peer);
  [[noreturn]] void fail_cut_off(int32_t peer);
  [[noreturn]] void fail_dead(int32_t peer, const std::string& why);
  [[noreturn]] void fail_late(const std::vector<bool>& late);
  std::string name_of(int32_t peer) const;

  const std::shared_ptr<Transport> transport_;
  const int32_t rank_;
  const std::vector<int32_t> members_;
  const Members of_;
  Poller poller_;
  std::vector<std::unique_ptr<TransportChannel>> channels_;  // null for this host itself
  std::vector<std::string> peer_addresses_;
  std::vector<std::string>
      nonces_;  // random numbers with which each peer proves that a connection comes from it
  const char* doing_ = "";
  Check check_;
  OverlapHook overlap_;
  std::optional<Error> failure_;
  std::atomic<bool> revoked_{false};
  std::vector<int32_t> to_move_;  // peers whose sockets may be readable or writable
};

}  // namespace dsc
