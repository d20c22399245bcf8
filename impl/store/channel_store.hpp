// A store through one connection, which is not replaced when it ends: whoever hears nothing of an error has
// had the same connection all the time, and a will on it stood.
#pragma once

#include "base/error.hpp"
#include "store/channel.hpp"
#include "store/key_table.hpp"
#include "store/store.hpp"

namespace dsc {

// One thread at a time.
class ChannelStore final : public Store {
 public:
  explicit ChannelStore(Channel& channel) : channel_(channel) {}

  // Besides what Channel throws: PEER_DEAD if the connection ended before.
  StoreReply perform(const StoreRequest& request, Deadline deadline) override {
    check_request(request, {});
    if (!channel_.usable()) fail(DSC_ERR_PEER_DEAD, "the connection to the store was lost");
    return channel_.ask(request, deadline);
  }

 private:
  Channel& channel_;
};

}  // namespace dsc
