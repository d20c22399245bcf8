// A store that the program implements with callbacks, for example on top of MPI's modex, an object store or a
// database. It supports only put and get. Other operations throw UNSUPPORTED.
#pragma once

#include <functional>
#include <string>

#include "store/store.hpp"

namespace dsc {

class CallbackStore final : public Store {
 public:
  // Both callbacks may block until the given deadline. get() must throw TIMEOUT if nobody has put the key by
  // then.
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
