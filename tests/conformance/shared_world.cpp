#include "shared_world.hpp"

#include <algorithm>
#include <chrono>

#include "shared_group.hpp"

namespace conformance {
namespace {

// an infinite deadline cannot be converted to a time point
constexpr int64_t kLongestSleepNs = dsc::kNsPerSecond;

void sleep_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
                 dsc::Deadline deadline) {
  const int64_t left_ns = std::min(deadline.remaining_ns(), kLongestSleepNs);
  condition.wait_for(lock, std::chrono::nanoseconds(left_ns));
}

std::mutex known_mutex;
std::vector<std::weak_ptr<SharedWorld>> known;

}  // namespace

std::shared_ptr<SharedWorld> SharedWorld::make(bool has_clock) {
  auto world = std::make_shared<SharedWorld>(has_clock);
  const std::lock_guard lock(known_mutex);
  std::erase_if(known, [](const auto& former) { return former.expired(); });
  known.push_back(world);
  return world;
}

std::vector<std::shared_ptr<SharedWorld>> SharedWorld::all() {
  std::vector<std::shared_ptr<SharedWorld>> worlds;
  const std::lock_guard lock(known_mutex);
  for (const auto& of : known)
    if (auto world = of.lock()) worlds.push_back(std::move(world));
  return worlds;
}

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

void SharedWorld::begin(RankLoad& load) noexcept {
  for (RankLoad* const of : {&load, &load_}) ++of->running;
}

void SharedWorld::end(RankLoad& load) noexcept {
  for (RankLoad* const of : {&load, &load_}) --of->running, ++of->ended;
}

bool SharedWorld::progress(const RankLoad& load, dsc::Deadline deadline, std::unique_lock<std::mutex>& lock) {
  for (const uint64_t ended = load.ended; load.running > 0 && load.ended == ended && !deadline.passed();)
    wait(lock, deadline);
  return load.running == 0;
}

void SharedWorld::run_clock() {
  std::unique_lock lock(mutex);
  while (!over_) {
    next_look_ = expire();
    sleep_until(earlier_, lock, next_look_);
  }
}

}  // namespace conformance
