// A store that uses one connection and never replaces it. If its calls have raised no error, the caller knows
// that the connection was never interrupted, and that the server still has the will of this process (see
// StoreOp::kWill).
#pragma once

#include "base/error.hpp"
#include "store/channel.hpp"
#include "store/key_table.hpp"
#include "store/store.hpp"

namespace dsc {

// May be used by one thread at a time.
class ChannelStore final : public Store {
 public:
  explicit ChannelStore(Channel& channel) : channel_(channel) {}

  // Throws what Channel throws, and PEER_DEAD if the connection had already ended.
  StoreReply perform(const StoreRequest& request, Deadline deadline) override {
    check_request(request, {});
    if (!channel_.usable()) fail(DSC_ERR_PEER_DEAD, "the connection to the store was lost");
    return channel_.ask(request, deadline);
  }

 private:
  Channel& channel_;
};

}  // namespace dsc
