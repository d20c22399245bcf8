// The queues of one communicator: one of collectives, and one for each direction of messages with each rank.
// The queues do not wait for each other.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "engine_hier/hier_queue.hpp"

namespace dsc {

// Any thread may call the functions.
class HierQueues {
 public:
  HierQueues(HierQueue::Open open, HierQueue::Execute execute, HostGroup& host)
      : open_(std::move(open)),
        execute_(std::move(execute)),
        host_(host),
        collectives_(open_, execute_, host_) {}

  // Returns the queue for a call. The queue exists as long as this object.
  HierQueue& of(const Call& call);
  void restart_sequence() noexcept { collectives_.restart_sequence(); }
  bool busy();
  void drain();

 private:
  std::vector<HierQueue*> all();

  const HierQueue::Open open_;
  const HierQueue::Execute execute_;
  HostGroup& host_;
  HierQueue collectives_;
  Mutex mutex_;
  std::map<int32_t, HierQueue> sends_ DSC_GUARDED_BY(mutex_);  // by peer
  std::map<int32_t, HierQueue> receives_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
