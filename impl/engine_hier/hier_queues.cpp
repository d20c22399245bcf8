#include "engine_hier/hier_queues.hpp"

#include <algorithm>

namespace dsc {

HierQueue& HierQueues::of(const Call& call) {
  const bool sends = call.kind == OpKind::kSend;
  if (!sends && call.kind != OpKind::kRecv) return collectives_;
  MutexLock lock(mutex_);
  return (sends ? sends_ : receives_).try_emplace(call.root, open_, execute_, host_).first->second;
}

std::vector<HierQueue*> HierQueues::all() {
  std::vector<HierQueue*> queues{&collectives_};
  MutexLock lock(mutex_);
  for (auto* side : {&sends_, &receives_})
    for (auto& [peer, queue] : *side) queues.push_back(&queue);
  return queues;
}

bool HierQueues::busy() {
  return std::ranges::any_of(all(), [](const HierQueue* queue) { return queue->busy(); });
}

void HierQueues::drain() {
  for (HierQueue* queue : all()) queue->drain();
}

}  // namespace dsc
