// The client's end of one connection to a StoreServer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "store/address.hpp"
#include "store/request.hpp"
#include "store/token.hpp"

namespace dsc {

struct StoreTarget {
  std::string host;  // for errors; the addresses are its
  uint16_t port = 0;
  std::vector<SocketAddress> addresses;
  Token token;
  std::string job_id;

  std::string text() const { return host_and_port(host, port); }
};

// One thread at a time.
class Channel {
 public:
  virtual ~Channel() = default;

  // Why there is no connection yet; another try makes sense.
  struct Failure {
    bool reached = false;  // somebody took the connection, and gave it up
    std::string reason;
  };

  // One try, of all addresses. Null, and the failure, if it came to nothing. Throws PROTOCOL (somebody else
  // answers, or nobody says anything for five seconds), VERSION, AUTH (one side has no token, or another),
  // ADDR_IN_USE (the store of a job with another id).
  static std::unique_ptr<Channel> connect(const StoreTarget& target, Deadline deadline, Failure& failure);

  // Of the server: another one at the same place has another.
  virtual const Nonce& incarnation() const = 0;

  // Throws PEER_DEAD (the connection ended), PROTOCOL, TIMEOUT, and what the server says. The channel is of
  // no more use unless usable().
  virtual StoreReply ask(const StoreRequest& request, Deadline deadline) = 0;

  // Of this end, as a number.
  virtual std::string own_address() const = 0;

  // The same in steps, for who has something else to do meanwhile and keeps the connection whatever happens.
  // A request of at most 4 KiB; one at a time.
  virtual void send(const StoreRequest& request, Deadline deadline) = 0;
  // The reply, also if it is an error; nothing if it has not come by the deadline. Throws PEER_DEAD,
  // PROTOCOL.
  virtual std::optional<StoreReply> receive(Deadline deadline) = 0;
  // Asks for the reply to what was sent at once: TIMEOUT, if it would have waited.
  virtual void cancel(Deadline deadline) = 0;

  // Any thread: the connection ends, and whoever waits in a call hears PEER_DEAD.
  virtual void cut() noexcept = 0;

  // False once the connection has ended or is out of step.
  virtual bool usable() = 0;
};

}  // namespace dsc
