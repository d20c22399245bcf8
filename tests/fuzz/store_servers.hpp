// The store's server as the fuzz targets use it.
#pragma once

#include <memory>

#include "base/fd.hpp"
#include "store/server.hpp"
#include "store/token.hpp"

namespace dsc::fuzz {

inline constexpr int kPatienceMs = 10000;

Token the_token();

class ServerUnderTest {
 public:
  virtual ~ServerUnderTest() = default;

  // Returns a client's end of a new connection. A receive on it waits at most kPatienceMs.
  virtual UniqueFd connect() = 0;
  // Must be called after everything that is sent to the server.
  virtual void run() = 0;
  virtual StoreServer::Counts counts() = 0;
};

// Only the state machine of the server, without a thread, with socket pairs instead of TCP. run() lets it do
// everything that it can, so that the same input always has the same effect.
std::unique_ptr<ServerUnderTest> bare_server();

// The server as jobs use it: with its thread, over TCP.
std::unique_ptr<ServerUnderTest> whole_server();

}  // namespace dsc::fuzz
