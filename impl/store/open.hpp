// From "memory://", "file:///PATH" and "tcp://HOST:PORT" to a store.
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

struct StoreOptions {
  const char* token = nullptr;         // null: find_token() asks the environment
  const char* job_id = nullptr;        // null: DSC_JOB_ID, or none
  const char* bind = nullptr;          // where a server listens; null: DSC_BIND, or the host of the URI
  bool serve = false;                  // tcp: this process is the server
  bool allow_unauthenticated = false;  // or DSC_ALLOW_UNAUTHENTICATED=1
  int32_t world_size = 1;
};

struct OpenStore {
  std::unique_ptr<StoreServer> server;  // of this process, if it serves; ends after `store`
  std::shared_ptr<Store> store;
  std::shared_ptr<TcpStore> tcp;      // the same as `store`, if it is one
  std::optional<StoreTarget> target;  // tcp: for connections besides the store's own
};

// What the options or DSC_ALLOW_UNAUTHENTICATED say. Throws CONFIG if that is neither 0 nor 1.
bool allows_unauthenticated(const StoreOptions& options, const Environment& environment);

// Throws INVALID_ARG (no such form, naming the forms), and what the kind of store throws when it is made.
OpenStore open_store(const std::string& uri, const StoreOptions& options, const Environment& environment,
                     Deadline deadline);

}  // namespace dsc
