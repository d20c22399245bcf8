#include "store/callback_store.hpp"

#include "base/error.hpp"
#include "store/key_table.hpp"

namespace dsc {

StoreReply CallbackStore::perform(const StoreRequest& request, Deadline deadline) {
  check_request(request, {});
  StoreReply reply;
  if (request.op == StoreOp::kSet) {
    callbacks_.put(request.keys[0], request.value, deadline);
  } else if (request.op == StoreOp::kGet) {
    reply.value = callbacks_.get(request.keys[0], deadline);
  } else if (request.op == StoreOp::kWait) {
    for (const std::string& key : request.keys) callbacks_.get(key, deadline);
  } else {
    fail(DSC_ERR_UNSUPPORTED, "%s: a store of callbacks supports only set, get and wait",
         store_op_name(request.op));
  }
  return reply;
}

}  // namespace dsc
