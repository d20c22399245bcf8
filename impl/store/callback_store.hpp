// A store of the host program's: MPI's modex, an object store, a database. It can put and get; the rest is
// UNSUPPORTED.
#pragma once

#include <functional>
#include <string>

#include "store/store.hpp"

namespace dsc {

class CallbackStore final : public Store {
 public:
  // Both may block up to the deadline that they are given. get() throws TIMEOUT if nobody has put the key.
  struct Callbacks {
    std::function<void(const std::string& key, const std::string& value, Deadline)> put;
    std::function<std::string(const std::string& key, Deadline)> get;
  };

  explicit CallbackStore(Callbacks callbacks) : callbacks_(std::move(callbacks)) {}

  StoreReply perform(const StoreRequest& request, Deadline deadline) override;

 private:
  const Callbacks callbacks_;
};

}  // namespace dsc
