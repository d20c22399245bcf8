// A store on another host, or in another process: a StoreServer reached through TCP.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "store/channel.hpp"
#include "store/store.hpp"

namespace dsc {

class TcpStore final : public Store {
 public:
  // Tries until somebody is there. Throws TIMEOUT (with the addresses tried and the last reason), and what
  // Channel::connect() throws. From then on a server that is not there any more, or another one, is
  // PEER_DEAD.
  TcpStore(StoreTarget target, Deadline deadline);

  // Threads that wait do not hold up others: each has a connection while it asks. Besides what a table
  // throws: what Channel throws.
  StoreReply perform(const StoreRequest& request, Deadline deadline) override;

  // One of its connections for the caller alone, a new one if none is idle. Throws what perform() throws.
  std::unique_ptr<Channel> take(Deadline deadline);
  void give_back(std::unique_ptr<Channel> channel);

 private:
  std::unique_ptr<Channel> connect(Deadline deadline) const;
  std::unique_ptr<Channel> connect_again(Deadline deadline) const;

  const StoreTarget target_;
  Nonce incarnation_{};
  Mutex mutex_;
  std::vector<std::unique_ptr<Channel>> idle_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
