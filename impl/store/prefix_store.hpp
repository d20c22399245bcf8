// Part of another store: its keys are "PREFIX/KEY" there, so users of one store cannot meet by accident.
#pragma once

#include <memory>
#include <string>

#include "store/store.hpp"

namespace dsc {

class PrefixStore final : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> store, std::string prefix);

  // kCount counts the whole store, as PyTorch 2.7 does.
  StoreReply perform(const StoreRequest& request, Deadline deadline) override;

 private:
  const std::shared_ptr<Store> store_;
  const std::string prefix_;
};

}  // namespace dsc
