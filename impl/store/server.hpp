// The server that ranks reach over TCP. It has one thread, one table, and a connection for each client. A
// client that has not proved that it has the token can make the server use only a few bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "store/address.hpp"
#include "store/key_table.hpp"
#include "store/token.hpp"

namespace dsc {

class ServerCore;

// Throws AUTH, with advice, if there is no token and an address is not loopback. `role` is what this process
// would do at the address: "listen", "be" or "connect".
void require_token(const std::vector<SocketAddress>& addresses, const Token& token, const char* role);

// Any thread may use it. A separate thread does the work.
class StoreServer {
 public:
  // Settings of a server.
  struct Options {
    // Addresses of other hosts are skipped. Port 0 means any free port.
    std::vector<SocketAddress> addresses;
    Token token;
    std::string job_id;
    int32_t world_size = 1;  // determines how many unauthenticated connections are accepted at a time
    bool allow_unauthenticated = false;
    int32_t authentication_ms = 5000;  // limit for the handshake of a new connection
    int32_t frame_ms = 10000;  // limit for receiving a large request while other requests wait for admission
    StoreLimits limits;
  };

  // Statistics of a server.
  struct Counts {
    uint64_t authenticated;  // number of authenticated connections so far
    // Connections so far that were refused: other protocols, wrong tokens, too slow, or too many.
    uint64_t refused;
    uint64_t unauthenticated;  // open connections that have not completed the handshake
    uint64_t members;          // open connections that have completed the handshake
    uint64_t waiting;          // members whose request waits for a key
    uint64_t incoming;         // bytes of large requests that were admitted and are not answered yet
  };

  // Listens and serves from now on. Throws ADDR_IN_USE if the port is in use, CONFIG if no address belongs to
  // this host, AUTH if there is no token and an address is not loopback, and SYSTEM.
  explicit StoreServer(Options options);
  // Closes all connections. Clients that wait get an error.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  uint16_t port() const noexcept { return port_; }
  Counts counts() const;

  // From now on no will is executed when a connection ends, and another server may use the port. Clients that
  // are already connected are still served. Any thread may call this.
  void retire() noexcept;

 private:
  std::unique_ptr<ServerCore> core_;
  uint16_t port_ = 0;
};

}  // namespace dsc
