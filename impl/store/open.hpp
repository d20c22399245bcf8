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

// Options of open_store(); the environment provides what is unset.
struct StoreOptions {
  const char* token = nullptr;         // null: find_token() looks in the environment
  const char* job_id = nullptr;        // null: DSC_JOB_ID, or no id
  const char* bind = nullptr;          // where a server listens; null: DSC_BIND, or the host of the URI
  bool serve = false;                  // tcp only: this process is the server
  bool allow_unauthenticated = false;  // or DSC_ALLOW_UNAUTHENTICATED=1
  int32_t world_size = 1;
};

// A store and, if this process serves it, its server.
struct OpenStore {
  std::unique_ptr<StoreServer> server;  // set if this process serves; destroyed after `store`
  std::shared_ptr<Store> store;
  std::shared_ptr<TcpStore> tcp;      // the same object as `store` if it is a TcpStore
  std::optional<StoreTarget> target;  // tcp only: for connections beyond those of the store
};

// Returns whether the options or DSC_ALLOW_UNAUTHENTICATED allow it. Throws CONFIG if the variable is neither
// 0 nor 1.
bool allows_unauthenticated(const StoreOptions& options, const Environment& environment);

// Throws INVALID_ARG for any other URI, listing the valid forms, and what the constructor of the store
// throws.
OpenStore open_store(const std::string& uri, const StoreOptions& options, const Environment& environment,
                     Deadline deadline);

}  // namespace dsc
