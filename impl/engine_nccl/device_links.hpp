// All message links of one engine: one for each peer and direction.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "engine_nccl/device_link.hpp"

namespace dsc {

// NcclEngine owns the object. Each link exists as long as this object.
class DeviceLinks {
 public:
  DeviceLinks(const NcclGroup& group, const NcclEnding& ending, DeviceFailures& failures, NcclOwner& owner)
      : group_(group), ending_(ending), failures_(failures), owner_(owner) {}

  // Returns the link of a message; the first message makes it. Only one thread at a time may call this.
  DeviceLink& get(const Call& call);
  // Throws STATE if a captured message has no connection yet. This must be called before other ranks learn of
  // the message.
  void expect_ready(const Call& call) const;
  // Returns the communicator of the group and those of all links. Any thread may call this.
  std::vector<std::shared_ptr<NcclCommunicator>> communicators() const;

 private:
  DeviceLink* find(const Call& call) const;

  const NcclGroup& group_;
  const NcclEnding& ending_;
  DeviceFailures& failures_;
  NcclOwner& owner_;
  mutable Mutex mutex_;
  std::map<std::pair<OpKind, int32_t>, std::unique_ptr<DeviceLink>> links_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
