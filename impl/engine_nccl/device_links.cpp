#include "engine_nccl/device_links.hpp"

#include "base/error.hpp"
#include "base/guard.hpp"

namespace dsc {

DeviceLink* DeviceLinks::find(const Call& call) const {
  const MutexLock lock(mutex_);
  const auto known = links_.find({call.kind, call.root});
  return known == links_.end() ? nullptr : known->second.get();
}

DeviceLink& DeviceLinks::get(const Call& call) {
  if (DeviceLink* const known = find(call)) return *known;
  auto made = std::make_unique<DeviceLink>(group_, ending_, failures_, call);
  DeviceLink& link = *made;
  capture(
      [&] {
        {
          const MutexLock lock(mutex_);
          links_.try_emplace(std::pair{call.kind, call.root}, std::move(made));
        }
        link.connect(owner_.keep_alive());
      },
      // The exchange must end, because it writes into the link, which is about to be destroyed.
      [&](const Error& error) {
        link.fail_connection(error);
        throw Error(error);
      });
  return link;
}

void DeviceLinks::expect_ready(const Call& call) const {
  const DeviceLink* const link = find(call);
  if (!link || !link->ready())
    fail(DSC_ERR_STATE,
         "the first message to or from a rank cannot be captured: expected one message before the capture");
}

// Releases this object's lock before it locks the links, because a link may hold its own lock for a long
// time.
std::vector<std::shared_ptr<NcclCommunicator>> DeviceLinks::communicators() const {
  std::vector<std::shared_ptr<NcclCommunicator>> all;
  if (group_.communicator) all.push_back(group_.communicator);
  std::vector<const DeviceLink*> links;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, link] : links_) links.push_back(link.get());
  }
  for (const DeviceLink* link : links)
    if (auto communicator = link->communicator()) all.push_back(std::move(communicator));
  return all;
}

}  // namespace dsc
