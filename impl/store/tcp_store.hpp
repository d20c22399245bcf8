// A store that is served by a StoreServer in another process or on another host, and reached over TCP.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "store/channel.hpp"
#include "store/store.hpp"

namespace dsc {

class TcpStore final : public Store {
 public:
  // Tries to connect until a server answers. Throws TIMEOUT with the addresses and the last reason, and what
  // Channel::connect() throws. If the server ends later or is replaced by another one, calls throw PEER_DEAD.
  TcpStore(StoreTarget target, Deadline deadline);

  // Each call uses a separate connection, so that a waiting thread does not delay others. Throws what
  // KeyTable::apply() and Channel throw.
  StoreReply perform(const StoreRequest& request, Deadline deadline) override;

  // Lends one connection to the caller exclusively, and opens a new one if none is idle. Throws what
  // perform() throws.
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
