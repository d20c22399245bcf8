// The store's server as the fuzz targets meet it.
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

  // A client's end of a new connection. Who receives there waits no longer than kPatienceMs.
  virtual UniqueFd connect() = 0;
  // To be called after each thing that is said to it.
  virtual void run() = 0;
  virtual StoreServer::Counts counts() = 0;
};

// Only its state machine: no thread, and pairs of sockets in place of TCP. run() lets it do all that it can,
// so that an input always does the same.
std::unique_ptr<ServerUnderTest> bare_server();

// As jobs have it, with its thread, behind TCP.
std::unique_ptr<ServerUnderTest> whole_server();

}  // namespace dsc::fuzz
