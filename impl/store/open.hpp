// Opens a store from a URI: "memory://", "file:///PATH" or "tcp://HOST:PORT".
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "store/channel.hpp"
#include "store/server.hpp"
#include "store/store.hpp"
#include "store/tcp_store.hpp"

namespace dsc {

// Options of open_store(). The environment provides values that are not set.
struct StoreOptions {
  const char* token = nullptr;   // null: find_token() searches the environment
  const char* job_id = nullptr;  // null: DSC_JOB_ID, or no id if that is not set
  const char* bind = nullptr;    // address at which a server listens; null: DSC_BIND, or the host of the URI
  bool serve = false;            // for tcp:// only: whether this process is the server
  bool allow_unauthenticated = false;  // DSC_ALLOW_UNAUTHENTICATED=1 has the same effect as true
  int32_t world_size = 1;
};

// A store, and its server if this process serves it.
struct OpenStore {
  std::unique_ptr<StoreServer> server;  // null if another process serves the store; destroyed after `store`
  std::shared_ptr<Store> store;
  std::shared_ptr<TcpStore> tcp;      // the same object as `store`; null if it is not a TcpStore
  std::optional<StoreTarget> target;  // for tcp:// only: for connections in addition to those of the store
};

// Returns whether the options or DSC_ALLOW_UNAUTHENTICATED allow connections without a token. Throws CONFIG
// if the variable is neither 0 nor 1.
bool allows_unauthenticated(const StoreOptions& options, const Environment& environment);

// Throws INVALID_ARG for a URI of another form; the message lists the valid forms. Throws what the
// constructor of the store throws.
OpenStore open_store(const std::string& uri, const StoreOptions& options, const Environment& environment,
                     Deadline deadline);

}  // namespace dsc
