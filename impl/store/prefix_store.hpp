// A part of another store. All its keys begin with "PREFIX/", so that different users of the store cannot use
// the same key.
#pragma once

#include <memory>
#include <string>

#include "store/store.hpp"

namespace dsc {

class PrefixStore final : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> store, std::string prefix);

  // kCount counts all keys of the underlying store, as in PyTorch 2.7.
  StoreReply perform(const StoreRequest& request, Deadline deadline) override;

 private:
  const std::shared_ptr<Store> store_;
  const std::string prefix_;
};

}  // namespace dsc
