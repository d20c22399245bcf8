// The client side of a connection to a StoreServer.
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

// A server and the credentials for it.
struct StoreTarget {
  std::string host;  // for messages; `addresses` are its addresses
  uint16_t port = 0;
  std::vector<SocketAddress> addresses;
  Token token;
  std::string job_id;

  std::string text() const { return host_and_port(host, port); }
};

// Used by one thread at a time, unless a function says otherwise.
class Channel {
 public:
  virtual ~Channel() = default;

  // Why an attempt to connect failed; another attempt may succeed.
  struct Failure {
    bool reached = false;  // a server accepted the connection and closed it
    std::string reason;
  };

  // Tries each address once. Returns null, with `failure`, if none worked. Throws PROTOCOL (a different
  // program answers, or no hello arrives within five seconds), VERSION, AUTH (one side has no token, or a
  // different one), ADDR_IN_USE (the store belongs to a job with another id).
  static std::unique_ptr<Channel> connect(const StoreTarget& target, Deadline deadline, Failure& failure);

  // Identifies the server process: a different server at the same address has a different incarnation.
  virtual const Nonce& incarnation() const = 0;

  // Sends a request and waits for the reply. Throws PEER_DEAD (the connection ended), PROTOCOL, TIMEOUT, and
  // errors that the server returns. Afterwards the channel must not be used unless usable().
  virtual StoreReply ask(const StoreRequest& request, Deadline deadline) = 0;

  // Returns the numeric address of this end.
  virtual std::string own_address() const = 0;

  // The functions below split ask() into steps, for callers that have other work and must never lose the
  // connection. A request has at most 4 KiB, and only one is open at a time.
  virtual void send(const StoreRequest& request, Deadline deadline) = 0;
  // Returns the reply, even if it is an error; nullopt if it has not arrived by the deadline. Throws
  // PEER_DEAD, PROTOCOL.
  virtual std::optional<StoreReply> receive(Deadline deadline) = 0;
  // Requests an immediate reply to the open request; it is TIMEOUT if the request would have to wait longer.
  virtual void cancel(Deadline deadline) = 0;

  // Ends the connection, from any thread; a thread that waits in a call gets PEER_DEAD.
  virtual void cut() noexcept = 0;

  // Returns false once the connection has ended or an incomplete exchange has made it unusable.
  virtual bool usable() = 0;
};

}  // namespace dsc
