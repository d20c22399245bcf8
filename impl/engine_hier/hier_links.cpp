#include "engine_hier/hier_links.hpp"

#include <numeric>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/wait.hpp"

namespace dsc {
namespace {

constexpr int kAskAgainMs = 50;
constexpr int kClearMs = 500;

// In groups with more ranks, ranks do not connect to each other, and the leaders pass on large blocks.
constexpr int kMostRanks = 32;

// Runs an operation of a transport group whose members are single ranks. The transport calls its members
// hosts, so the numbers in its errors are changed from hosts to ranks of the group.
void as_ranks_of_group(const std::function<void()>& operation) {
  capture(operation, [&](const Error& error) {
    Failure failure = error.failure();
    failure.has_user_ranks = true;
    throw Error(failure);
  });
}

// The store, for as long as rank 0 serves it. While rank 0 is unresponsive, nothing is requested, because
// such a request could not be aborted.
class ServedStore final : public Exchange {
 public:
  ServedStore(const HierWorld& world, const CommState& state) : world_(world), state_(state) {}

  void put(std::string_view key, std::string_view value, Deadline deadline) override {
    expect_server(deadline);
    world_.store().put(key, value, deadline);
  }
  std::string get(std::string_view key, int32_t owner, Deadline deadline) override {
    expect_server(deadline);
    return world_.store().get(key, owner, deadline);
  }

 private:
  void expect_server(Deadline deadline) const {
    world_.expect_store(state_);
    if (!world_.unresponsive_ns(0)) return;
    sleep_until(sooner(deadline, Deadline::after_ms(kAskAgainMs)));
    fail(DSC_ERR_TIMEOUT, "rank 0, which serves the store, does not run");
  }

  const HierWorld& world_;
  const CommState& state_;
};

std::vector<int32_t> members_of(const HierLayout& layout, const std::vector<bool>& hosts) {
  std::vector<int32_t> ranks;
  for (size_t host = 0; host < hosts.size(); ++host) {
    if (!hosts[host]) continue;
    const auto& members = layout.members(static_cast<int>(host));
    ranks.insert(ranks.end(), members.begin(), members.end());
  }
  return ranks;
}

}  // namespace

// If this host cannot open its end, it publishes the error instead of its address, so that the other hosts
// fail with the same cause and do not wait.
std::unique_ptr<TransportGroup> HierLinks::open(const std::string& prefix, int own,
                                                std::vector<int32_t> members, Connections::Members of) {
  std::unique_ptr<TransportGroup> group;
  capture([&] { group = std::make_unique<TransportGroup>(world_.transport(), own, std::move(members), of); },
          [&](const Error& error) {
            world_.refuse(prefix, own, error);
            throw error;
          });
  return group;
}

// Removes this host's key once all hosts are connected and have read it, because the keys of many groups
// would fill the store. If the removal or connecting fails, the key is removed later, because other hosts may
// still have to read it.
void HierLinks::connect_and_clear(TransportGroup& group, const std::string& prefix, int own,
                                  Deadline deadline) {
  ServedStore store(world_, state_);
  const std::string key = prefix + "/" + std::to_string(own);
  capture([&] { group.connect(store, prefix, deadline); },
          [&](const Error& error) {
            world_.forget_later(key);
            throw error;
          });
  capture([&] { world_.store().remove(key, sooner(deadline, Deadline::after_ms(kClearMs))); },
          [&](dsc_result_t, const char*) { world_.forget_later(key); });
}

// ---- between the leaders

void HierLinks::open_leaders() {
  std::vector<int32_t> leaders;
  leaders.reserve(static_cast<size_t>(layout_.hosts()));
  for (int host = 0; host < layout_.hosts(); ++host) leaders.push_back(layout_.leader(host));
  leaders_ = open(own_key(), layout_.own_host(), std::move(leaders), Connections::Members::kLeaders);
  leaders_->set_check([this](const std::vector<bool>& awaited) {
    check_host_();
    status_.report_late(collective_, members_of(layout_, awaited));
  });
}

void HierLinks::connect_leaders(Deadline deadline) {
  connect_and_clear(*leaders_, own_key(), layout_.own_host(), deadline);
}

void HierLinks::refuse_leaders(HierWorld& world, uint64_t group, int own_host, const Error& why) {
  world.refuse(key_of(group), own_host, why);
}

// ---- between all ranks

bool HierLinks::connect_ranks(const AllCan& all_can, Deadline deadline) {
  if (layout_.size() > kMostRanks) return false;
  if (!ranks_connect_) {
    std::unique_ptr<TransportGroup> group = open_among_ranks();
    ranks_connect_ = all_can(group != nullptr);
    if (*ranks_connect_) connect_among_ranks(std::move(group), deadline);
  }
  return *ranks_connect_;
}

std::unique_ptr<TransportGroup> HierLinks::open_among_ranks() {
  std::vector<int32_t> ranks(static_cast<size_t>(layout_.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::unique_ptr<TransportGroup> group;
  capture(
      [&] {
        group = std::make_unique<TransportGroup>(world_.transport(), layout_.rank(), std::move(ranks),
                                                 Connections::Members::kRanks);
      },
      [&](dsc_result_t, const char* why) {
        log(DSC_LOG_LEVEL_WARN, "group \"%s\" passes large blocks through one rank of each host: %s",
            state_.name().c_str(), why);
      });
  return group;
}

void HierLinks::connect_among_ranks(std::unique_ptr<TransportGroup> made, Deadline deadline) {
  TransportGroup& group = *made;
  group.set_check([this](const std::vector<bool>& awaited) {
    check_host_();
    std::vector<int32_t> late;
    for (size_t rank = 0; rank < awaited.size(); ++rank)
      if (awaited[rank]) late.push_back(static_cast<int32_t>(rank));
    status_.report_late(collective_, late);
  });
  {
    MutexLock lock(mutex_);  // stored before it connects, so that a failure of the group aborts it
    among_ranks_ = std::move(made);
  }
  end_if_over(group);
  as_ranks_of_group([&] { connect_and_clear(group, own_key() + "/ranks", layout_.rank(), deadline); });
}

void HierLinks::exchange_among_ranks(std::span<const TransportBlock> sends,
                                     std::span<const TransportBlock> receives, Deadline deadline,
                                     OverlapHook overlap) {
  TransportGroup* group = nullptr;
  {
    MutexLock lock(mutex_);
    group = among_ranks_.get();
  }
  as_ranks_of_group([&] { group->exchange(sends, receives, deadline, std::move(overlap)); });
}

// ---- between two ranks

TransportGroup& HierLinks::pair(int sender, int receiver, HierStatus::Waiting waiting, Deadline deadline) {
  const bool sends = sender == layout_.rank();
  {
    MutexLock lock(mutex_);
    const auto found = pairs_.find({sender, receiver});
    if (found != pairs_.end()) {
      found->second->waiting = waiting;
      return *found->second->group;
    }
  }
  auto made = std::make_unique<Pair>();
  Pair& pair = *made;
  const std::string key = own_key() + "/" + std::to_string(sender) + "-" + std::to_string(receiver);
  pair.group = open(key, sends ? 0 : 1, {sender, receiver}, Connections::Members::kRanks);
  pair.waiting = waiting;
  pair.group->set_check([this, &pair, other = sends ? receiver : sender](const std::vector<bool>&) {
    check_host_();
    // Once connected, the connection itself reports that the rank has left.
    if (!pair.connected) world_.expect_member(state_.id(), other);
    status_.report_late(pair.waiting, {other});
  });
  {
    MutexLock lock(mutex_);  // stored before it connects, so that a failure of the group aborts it
    pairs_[{sender, receiver}] = std::move(made);
  }
  end_if_over(*pair.group);
  connect_and_clear(*pair.group, key, sends ? 0 : 1, deadline);
  pair.connected = true;
  return *pair.group;
}

// ---- the end

// Returns all transport groups except the leaders' group. They exist as long as this object.
std::vector<TransportGroup*> HierLinks::others() {
  std::vector<TransportGroup*> groups;
  MutexLock lock(mutex_);
  if (among_ranks_) groups.push_back(among_ranks_.get());
  for (const auto& [ends, pair] : pairs_) groups.push_back(pair->group.get());
  return groups;
}

// Called after a group is stored and before it connects. A communicator that ends at the same time either
// finds the stored group and ends it, or is noticed here.
void HierLinks::end_if_over(TransportGroup& group) {
  if (failed_.load()) return group.abort();
  std::optional<Failure> left;
  {
    MutexLock lock(mutex_);
    left = left_;
  }
  if (left) group.abort(*left);
}

void HierLinks::fail(const Failure& why) noexcept {
  failed_.store(true);
  if (leaders_) leaders_->abort(why);
  call_out([&] { TransportGroup::abort_all(others()); });
}

void HierLinks::leave(const Failure& why) noexcept {
  call_out([&] {
    {
      MutexLock lock(mutex_);
      if (!left_) left_ = why;
    }
    std::vector<TransportGroup*> groups = others();
    if (leaders_) groups.push_back(leaders_.get());
    TransportGroup::abort_all(groups, why);
  });
}

}  // namespace dsc
