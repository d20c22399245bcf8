// The object behind the handle of a store.
#pragma once

#include <memory>

#include "base/handle_table.hpp"
#include "dsc/store.h"
#include "store/server.hpp"
#include "store/store.hpp"

namespace dsc {

inline constexpr int32_t kStoreTimeoutMs = 300'000;

// The server is destroyed after the store, so that the store can close its connections in an orderly way.
struct StoreObject {
  std::shared_ptr<StoreServer> server;
  std::shared_ptr<Store> store;
  int32_t timeout_ms = kStoreTimeoutMs;
};

// Returns the store. The result keeps the store and, if this process serves it, its server.
inline std::shared_ptr<Store> store_of(const dsc_store_t* handle) {
  const Pinned<StoreObject> pinned(HandleKind::kStore, handle);
  const auto whole = std::make_shared<StoreObject>(*pinned);
  return {whole, whole->store.get()};
}

}  // namespace dsc
