#include "store/prefix_store.hpp"

#include <utility>

#include "base/error.hpp"

namespace dsc {

PrefixStore::PrefixStore(std::shared_ptr<Store> store, std::string prefix)
    : store_(std::move(store)), prefix_(std::move(prefix) + "/") {
  if (prefix_ == "/") fail(DSC_ERR_INVALID_ARG, "the prefix is empty");
}

StoreReply PrefixStore::perform(const StoreRequest& request, Deadline deadline) {
  StoreRequest there = request;
  for (std::string& key : there.keys) {
    if (key.empty()) fail(DSC_ERR_INVALID_ARG, "the key is empty");
    key.insert(0, prefix_);
  }
  return store_->perform(there, deadline);
}

}  // namespace dsc
