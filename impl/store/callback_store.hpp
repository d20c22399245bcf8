// A store that the host program implements with callbacks, such as MPI's modex, an object store or a
// database. It supports put and get; other operations throw UNSUPPORTED.
#pragma once

#include <functional>
#include <string>

#include "store/store.hpp"

namespace dsc {

class CallbackStore final : public Store {
 public:
  // Both may block until the given deadline. get() must throw TIMEOUT if nobody has put the key.
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
