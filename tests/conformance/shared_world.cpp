#include "shared_world.hpp"

#include <algorithm>
#include <chrono>

#include "shared_group.hpp"

namespace conformance {
namespace {

constexpr int64_t kLongestSleepNs = dsc::kNsPerSecond;  // a deadline of never has no time point

void sleep_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
                 dsc::Deadline deadline) {
  const int64_t left_ns = std::min(deadline.remaining_ns(), kLongestSleepNs);
  condition.wait_for(lock, std::chrono::nanoseconds(left_ns));
}

}  // namespace

SharedWorld::SharedWorld(bool has_clock) {
  if (has_clock) clock_ = std::thread([this] { run_clock(); });
}

SharedWorld::~SharedWorld() {
  if (!clock_.joinable()) return;
  {
    const std::lock_guard lock(mutex);
    over_ = true;
    earlier_.notify_one();
  }
  clock_.join();
}

std::shared_ptr<SharedGroup> SharedWorld::join(uint64_t id, int size, int comers) {
  const std::lock_guard lock(mutex);
  auto [place, is_new] = forming_.try_emplace(id);
  Forming& forming = place->second;
  if (is_new) forming = {std::make_shared<SharedGroup>(shared_from_this(), id, size), comers};
  const std::shared_ptr<SharedGroup> group = forming.group;
  if (--forming.missing == 0) forming_.erase(place);
  return group;
}

dsc::Deadline SharedWorld::expire() {
  dsc::Deadline next = dsc::Deadline::never();
  for (SharedGroup* const group : groups_) next = sooner(next, group->expire());
  return next;
}

void SharedWorld::look_at(dsc::Deadline deadline) {
  if (deadline.ns < next_look_.ns) earlier_.notify_one();
}

void SharedWorld::wait(std::unique_lock<std::mutex>& lock, dsc::Deadline deadline) {
  sleep_until(changed_, lock, sooner(deadline, expire()));
  expire();
}

void SharedWorld::run_clock() {
  std::unique_lock lock(mutex);
  while (!over_) {
    next_look_ = expire();
    sleep_until(earlier_, lock, next_look_);
  }
}

}  // namespace conformance
