// The store that ranks reach through TCP: one thread, one table, and connections that prove their token
// before anything that they say costs more than a few bytes.
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

// Throws AUTH, with the remedy, if one of the addresses is not loopback and there is no token. `role` says
// what this process does there: "listen", "connect".
void require_token(const std::vector<SocketAddress>& addresses, const Token& token, const char* role);

class StoreServer {
 public:
  struct Options {
    std::vector<SocketAddress> addresses;  // those that are not this host's are left out; port 0: a free one
    Token token;
    std::string job_id;
    int32_t world_size = 1;  // for the number of strangers that are let in at a time
    bool allow_unauthenticated = false;
    int32_t authentication_ms = 5000;  // for all that a stranger has to say
    int32_t frame_ms = 10000;          // for all of a large frame, while others wait for its room
    StoreLimits limits;
  };

  struct Counts {
    uint64_t authenticated;  // connections, of all time
    uint64_t refused;        // the same: garbage, wrong tokens, too slow, too many
    uint64_t strangers;      // connections that have not proved anything yet
    uint64_t members;        // connections that have
    uint64_t waiting;        // of these, in a get or wait
    uint64_t incoming;       // bytes of large requests that are let in, and not answered yet
  };

  // Listens and serves from now on. Throws ADDR_IN_USE (the port is taken), CONFIG (no address is this
  // host's), AUTH (an address that is not loopback, and no token), SYSTEM.
  explicit StoreServer(Options options);
  // Everybody who waits sees the connection end.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  uint16_t port() const noexcept { return port_; }
  Counts counts() const;

  // Any thread: from here on the end of a connection changes nothing.
  void drop_wills() noexcept;

 private:
  std::unique_ptr<ServerCore> core_;
  uint16_t port_ = 0;
};

}  // namespace dsc
