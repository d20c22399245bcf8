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

// A server, and the credentials needed to connect to it.
struct StoreTarget {
  std::string host;  // the host as the user wrote it, for messages; `addresses` are its addresses
  uint16_t port = 0;
  std::vector<SocketAddress> addresses;
  Token token;
  std::string job_id;

  std::string text() const { return host_and_port(host, port); }
};

// One thread at a time may use a channel, unless a function says otherwise.
class Channel {
 public:
  virtual ~Channel() = default;

  // Why an attempt to connect failed. Another attempt may succeed.
  struct Failure {
    bool reached = false;  // whether a server accepted the connection and then closed it
    std::string reason;
  };

  // Tries each address once. If no attempt succeeds, returns null and sets `failure`. Throws PROTOCOL if
  // another program answers or no hello arrives within five seconds, VERSION, AUTH if the tokens differ or
  // only one side has a token, and ADDR_IN_USE if the store belongs to a job with another id.
  static std::unique_ptr<Channel> connect(const StoreTarget& target, Deadline deadline, Failure& failure);

  // Identifies the server process. A later server at the same address has a different incarnation.
  virtual const Nonce& incarnation() const = 0;

  // Sends a request and waits for the reply. Throws PEER_DEAD if the connection has ended, PROTOCOL, TIMEOUT,
  // and errors that the server returns. After an error the channel may be used only if usable() returns true.
  virtual StoreReply ask(const StoreRequest& request, Deadline deadline) = 0;

  // Returns the numeric address of this process on the connection.
  virtual std::string own_address() const = 0;

  // The functions below split ask() into steps, for callers that have other work to do and must never lose
  // the connection. A request has at most 4 KiB, and only one request may be open at a time.
  virtual void send(const StoreRequest& request, Deadline deadline) = 0;
  // Returns the reply, even if it is an error. Returns nullopt if the reply has not arrived by the deadline.
  // Throws PEER_DEAD, PROTOCOL.
  virtual std::optional<StoreReply> receive(Deadline deadline) = 0;
  // Asks the server to reply to the open request immediately. If the request is still waiting, the reply is
  // TIMEOUT.
  virtual void cancel(Deadline deadline) = 0;

  // Ends the connection. Any thread may call this. A thread that waits in a call gets PEER_DEAD.
  virtual void cut() noexcept = 0;

  // Returns false if the connection has ended, or if an incomplete exchange has made it unusable.
  virtual bool usable() = 0;
};

}  // namespace dsc
