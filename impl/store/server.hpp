// The server that ranks reach over TCP: one thread, one table, and connections. A connection that has not
// proved that it has the token can use only a few bytes.
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
// does at the address: "listen" or "connect".
void require_token(const std::vector<SocketAddress>& addresses, const Token& token, const char* role);

// Any thread may use it; a separate thread does the work.
class StoreServer {
 public:
  // Settings of a server.
  struct Options {
    // Addresses of other hosts are skipped; port 0 means a free one.
    std::vector<SocketAddress> addresses;
    Token token;
    std::string job_id;
    int32_t world_size = 1;  // determines how many unauthenticated connections are accepted at a time
    bool allow_unauthenticated = false;
    int32_t authentication_ms = 5000;  // limit for the handshake of a new connection
    int32_t frame_ms = 10000;          // limit for receiving a large frame while others wait for admission
    StoreLimits limits;
  };

  // Statistics of a server.
  struct Counts {
    uint64_t authenticated;    // connections, in total
    uint64_t refused;          // connections, in total: garbage, wrong tokens, too slow, too many
    uint64_t unauthenticated;  // connections that have not completed the handshake
    uint64_t members;          // connections that have completed it
    uint64_t waiting;          // members that wait in a get or wait
    uint64_t incoming;         // bytes of large requests that were admitted and not yet answered
  };

  // Listens and serves from now on. Throws ADDR_IN_USE (the port is taken), CONFIG (no address belongs to
  // this host), AUTH (no token, and an address that is not loopback), SYSTEM.
  explicit StoreServer(Options options);
  // Clients that wait get the end of their connection.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  uint16_t port() const noexcept { return port_; }
  Counts counts() const;

  // From now on no will is executed when a connection ends, and the port is free for another server; the
  // clients that are connected are served as before. Any thread.
  void retire() noexcept;

 private:
  std::unique_ptr<ServerCore> core_;
  uint16_t port_ = 0;
};

}  // namespace dsc
