#include "engine_hier/hier_world.hpp"

#include <algorithm>
#include <vector>

#include "base/environment.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "engine_hier/hier_engine.hpp"

namespace dsc {
namespace {

constexpr size_t kKeptFailures = 256;
constexpr size_t kKeptGroups = 256;
constexpr size_t kKeptKeys = 8;
// Maximum number of keys that one call removes. One key would be enough, but keys accumulate while the store
// does not answer.
constexpr size_t kMostRemoved = 2;
constexpr int kRemoveMs = 500;
constexpr int kCatchUpMs = 500;
constexpr int kLateLeaveMs = 500;  // minimum time to announce that this rank leaves
// If the store did not answer, no departure is announced for this time.
constexpr int64_t kNextAnnounceMs = 5000;
// Silence after which on_unresponsive() is called.
constexpr int64_t kUnresponsiveNs = kReportSilenceMs * kNsPerMs;

}  // namespace

HierWorld::~HierWorld() {
  if (control_ && !ended_in_order_.load())
    control_->leave(later(start_up_deadline_, Deadline::after_ms(kLateLeaveMs)));
}

void HierWorld::begin_control(std::shared_ptr<const HostGroup> here, int64_t stall_timeout_ms,
                              Deadline deadline) {
  start_up_deadline_ = deadline;
  JobControlSettings settings;
  settings.job = job_;
  settings.rank = here->global_rank(here->rank());
  settings.stalled_here = [here = std::move(here)] { return here->stalled_ranks(); };
  settings.world_size = static_cast<int32_t>(layout_.host_of_rank.size());
  settings.stall_timeout_ms = stall_timeout_ms;
  settings.hosts.resize(static_cast<size_t>(layout_.host_count()));
  for (size_t r = 0; r < layout_.host_of_rank.size(); ++r)
    settings.hosts[static_cast<size_t>(layout_.host_of_rank[r])].push_back(static_cast<int32_t>(r));
  JobListener& listener = *this;
  control_ = std::make_unique<JobControl>(std::move(settings), listener, deadline);
}

std::shared_ptr<Transport> HierWorld::transport() {
  MutexLock lock(mutex_);
  if (!transport_) transport_ = std::make_shared<Transport>(load_transport(process_environment()), address_);
  return transport_;
}

void HierWorld::expect_store(const CommState& state) const {
  MutexLock lock(mutex_);
  if (const auto gone = gone_.find(0); gone != gone_.end()) throw Error(failure_of(state, 0, gone->second));
}

void HierWorld::forget_later(const std::string& key) noexcept {
  call_out([&] {
    const bool may_remove = store_answers();
    std::vector<std::string> oldest;
    {
      MutexLock lock(mutex_);
      kept_keys_.push_back(key);
      for (; may_remove && kept_keys_.size() > kKeptKeys && oldest.size() < kMostRemoved;
           kept_keys_.pop_front())
        oldest.push_back(std::move(kept_keys_.front()));
    }
    for (const std::string& one : oldest) store().remove(one, Deadline::after_ms(kRemoveMs));
  });
}

void HierWorld::refuse(const std::string& prefix, int own, const Error& why) {
  TransportGroup::refuse(store(), prefix, own, why);
  forget_later(prefix + "/" + std::to_string(own));
}

void HierWorld::enlist(HierEngine& engine) {
  std::optional<Failure> before;
  {
    MutexLock lock(mutex_);
    engines_[engine.id()] = &engine;
    if (const auto known = find_elsewhere(engine.id()); known != left_elsewhere_.end()) {
      left_[engine.id()] = std::move(known->second);
      left_elsewhere_.erase(known);
    }
    for (const auto& [group, cause] : failed_)
      if (group == engine.id()) before = cause;
    for (const auto& [rank, gone] : gone_)
      if (!before && engine.state.group_rank(rank) != kNoRank) before = failure_of(engine.state, rank, gone);
  }
  if (before) engine.learn_of(*before);
}

void HierWorld::take_off(HierEngine& engine) noexcept {
  MutexLock lock(mutex_);
  if (const auto found = engines_.find(engine.id()); found != engines_.end() && found->second == &engine) {
    engines_.erase(found);
    left_.erase(engine.id());
  }
  while (visiting_ == &engine) visited_.wait(mutex_);
}

// Returns false if rank 0, which serves the store, is gone or unresponsive.
bool HierWorld::store_answers() const {
  MutexLock lock(mutex_);
  return !gone_.contains(0) && !unresponsive_since_ns_.contains(0);
}

void HierWorld::catch_up() noexcept {
  if (behind_.exchange(false) && !ended_in_order_.load() && store_answers())
    control_->catch_up(Deadline::after_ms(kCatchUpMs));
}

// Returns false if no other rank can be reached, or if all members on other hosts have left already.
bool HierWorld::is_worth_telling(const HierEngine& engine) const {
  if (ended_in_order_.load() || !store_answers()) return false;
  const std::vector<int32_t>& members = engine.state.global_ranks();
  const auto host_of = [&](int32_t global_rank) {
    return layout_.host_of_rank[static_cast<size_t>(global_rank)];
  };
  const int32_t own_host = host_of(members[static_cast<size_t>(engine.rank())]);
  MutexLock lock(mutex_);
  const auto known = left_.find(engine.id());
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const bool has_left = known != left_.end() && known->second.contains(static_cast<int32_t>(rank));
    if (host_of(members[rank]) != own_host && !has_left) return true;
  }
  return false;
}

// If the store does not answer, nothing is announced for some time. Otherwise the end of every group would be
// delayed.
void HierWorld::announce(const HierEngine& engine, const GroupLeft& left) noexcept {
  call_out([&] {
    if (now_ns() >= announces_from_ns_.load() && is_worth_telling(engine) && !control_->announce(left))
      announces_from_ns_.store(now_ns() + kNextAnnounceMs * kNsPerMs);
  });
}

// If rank 0 is gone, so is the store, and nothing can be published.
Failure HierWorld::publish(uint64_t group, const Failure& cause, const std::vector<RankGone>& gone) {
  {
    const MutexLock lock(mutex_);
    if (gone_.contains(0)) return cause;
  }
  return control_->publish(group, cause, gone);
}

void HierWorld::expect_member(uint64_t group, int32_t rank) const {
  MutexLock lock(mutex_);
  const auto departures = left_.find(group);
  if (departures == left_.end()) return;
  if (const auto left = departures->second.find(rank); left != departures->second.end())
    throw Error(dsc::failure_of(left->second));
}

void HierWorld::begin_end() noexcept {
  job_->begin_closing(false);
  control_->ignore_ends();
}

void HierWorld::end_in_order() noexcept {
  control_->stop_listening();
  ended_in_order_.store(true);
  job_->retire();
}

std::optional<int64_t> HierWorld::unresponsive_ns(int32_t rank) const {
  MutexLock lock(mutex_);
  const auto found = unresponsive_since_ns_.find(rank);
  if (found == unresponsive_since_ns_.end()) return std::nullopt;
  return now_ns() - found->second;
}

// ---- callbacks on the control's thread

// Calls the engine of a group, if there is one. take_off() waits until the call has returned.
template <typename Visit>
void HierWorld::visit(uint64_t group, Visit call) {
  HierEngine* engine = nullptr;
  {
    MutexLock lock(mutex_);
    const auto found = engines_.find(group);
    if (found == engines_.end()) return;
    visiting_ = engine = found->second;
  }
  struct End {  // also if the call throws: take_off() waits for it
    HierWorld& world;
    ~End() {
      MutexLock lock(world.mutex_);
      world.visiting_ = nullptr;
      world.visited_.notify_all();
    }
  } end{*this};
  call(*engine);
}

void HierWorld::on_failure(uint64_t group, const Failure& cause) {
  {
    MutexLock lock(mutex_);
    failed_.emplace_back(group, cause);
    if (failed_.size() > kKeptFailures) failed_.pop_front();
  }
  visit(group, [&](HierEngine& engine) { engine.learn_of(cause); });
}

Failure HierWorld::failure_of(const CommState& state, int32_t rank, const Gone& gone) {
  const int32_t member = state.group_rank(rank);
  Failure cause;
  cause.code = gone.code;
  cause.set_group(state.id(), state.name());
  cause.revoked = true;
  cause.has_user_ranks = true;
  if (member != kNoRank) cause.ranks = {member};
  if (member == kNoRank)
    cause.text += "as a rank of the world: ";
  else if (member != rank)
    cause.text.add("rank %d of the group is gone; as a rank of the world: ", member);
  cause.text += gone.text;
  return cause;
}

// An orderly departure is ignored here: the rank that leaves informs the ranks that wait for it over its
// connections.
void HierWorld::on_gone(int32_t rank, dsc_result_t code, const std::string& text) {
  if (code == DSC_ERR_PEER_LEFT) return;
  std::vector<uint64_t> groups;
  const Gone gone{code, text};
  {
    MutexLock lock(mutex_);
    gone_.try_emplace(rank, gone);
    unresponsive_since_ns_.erase(rank);
    for (const auto& [group, engine] : engines_)
      if (engine->state.group_rank(rank) != kNoRank) groups.push_back(group);
  }
  log(DSC_LOG_LEVEL_WARN, "%s", text.c_str());
  for (const uint64_t group : groups)
    visit(group, [&](HierEngine& engine) { engine.learn_of(failure_of(engine.state, rank, gone)); });
}

std::deque<std::pair<uint64_t, HierWorld::Departures>>::iterator HierWorld::find_elsewhere(uint64_t group) {
  return std::ranges::find_if(left_elsewhere_, [group](const auto& known) { return known.first == group; });
}

void HierWorld::on_left(const GroupLeft& left) {
  MutexLock lock(mutex_);
  if (engines_.contains(left.group)) {
    left_[left.group].try_emplace(left.rank, left);
    return;
  }
  auto known = find_elsewhere(left.group);
  if (known == left_elsewhere_.end()) {
    if (left_elsewhere_.size() >= kKeptGroups) left_elsewhere_.pop_front();
    known = left_elsewhere_.insert(left_elsewhere_.end(), {left.group, {}});
  }
  known->second.try_emplace(left.rank, left);
}

void HierWorld::on_unresponsive(int32_t rank, bool unresponsive) {
  if (unresponsive)
    log(DSC_LOG_LEVEL_WARN, "nothing was heard from rank %d for 2 s", rank);
  else
    log(DSC_LOG_LEVEL_INFO, "rank %d is heard from again", rank);
  MutexLock lock(mutex_);
  if (unresponsive)
    unresponsive_since_ns_.try_emplace(rank, now_ns() - kUnresponsiveNs);
  else
    unresponsive_since_ns_.erase(rank);
}

std::string HierWorld::answer(uint64_t group, const std::string& question) {
  std::string text = "does not know the group";
  visit(group, [&](HierEngine& engine) { text = engine.status().answer(question); });
  return text;
}

}  // namespace dsc
