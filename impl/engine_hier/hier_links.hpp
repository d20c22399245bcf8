// The connections of one rank of a communicator to other hosts: a transport group between the leaders, one
// between all ranks, and one for each pair of ranks on different hosts that exchange messages. The latter two
// are made when they are first needed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "engine_hier/hier_layout.hpp"
#include "engine_hier/hier_status.hpp"
#include "engine_hier/hier_world.hpp"
#include "transport/transport_group.hpp"

namespace dsc {

// Functions throw what TransportGroup throws. While an operation waits, its thread reports late ranks and
// calls `check_host`, whose exception ends the operation.
class HierLinks {
 public:
  // The communicator owns the arguments.
  HierLinks(HierWorld& world, const HierLayout& layout, const CommState& state, const HierStatus& status,
            std::function<void()> check_host)
      : world_(world), layout_(layout), state_(state), status_(status), check_host_(std::move(check_host)) {}

  // --- Between the leaders. Called on leaders only, by the thread of the collectives.
  void open_leaders();
  void connect_leaders(Deadline deadline);  // after open_leaders()
  TransportGroup& leaders() noexcept { return *leaders_; }
  // Tells the leaders of a group that is being made why this host cannot take part.
  static void refuse_leaders(HierWorld& world, uint64_t group, int own_host, const Error& why);

  // --- Between all ranks. Called by the thread of the collectives.
  // Collective: returns whether all ranks are connected to each other; the first call connects them. If a
  // rank cannot open its end, no rank connects. `all_can` returns whether its argument is true on all ranks.
  using AllCan = std::function<bool(bool can)>;
  bool connect_ranks(const AllCan& all_can, Deadline deadline);
  void exchange_among_ranks(std::span<const TransportBlock> sends, std::span<const TransportBlock> receives,
                            Deadline deadline, OverlapHook overlap);

  // Sets the collective in which this rank waits from now on, so that late ranks are reported for it.
  void begin_collective(OpKind kind, uint64_t sequence) { collective_ = {kind, sequence, now_ns()}; }

  // --- Between two ranks.
  // Returns the transport group in which `sender` is number 0 and `receiver` is number 1; one of
  // them is this rank. One thread at a time for each pair.
  TransportGroup& pair(int sender, int receiver, HierStatus::Waiting waiting, Deadline deadline);

  // --- The end. Any thread may call this.
  // Ends all connections, including later ones. Leaders of other hosts receive the cause.
  void fail(const Failure& why) noexcept;
  // Ends all connections. The ranks at the other ends receive the cause.
  void leave(const Failure& why) noexcept;

 private:
  struct Pair {
    std::unique_ptr<TransportGroup> group;
    HierStatus::Waiting waiting;
    bool connected = false;  // used by the thread of its operations only
  };

  static std::string key_of(uint64_t group) { return "hier/" + std::to_string(group); }
  std::string own_key() const { return key_of(state_.id()); }
  std::unique_ptr<TransportGroup> open(const std::string& prefix, int own, std::vector<int32_t> members,
                                       Connections::Members of);
  void connect_and_clear(TransportGroup& group, const std::string& prefix, int own, Deadline deadline);
  std::unique_ptr<TransportGroup> open_among_ranks();
  void connect_among_ranks(std::unique_ptr<TransportGroup> made, Deadline deadline);
  std::vector<TransportGroup*> others();
  void end_if_over(TransportGroup& group);

  HierWorld& world_;
  const HierLayout& layout_;
  const CommState& state_;
  const HierStatus& status_;
  const std::function<void()> check_host_;
  HierStatus::Waiting collective_;
  std::unique_ptr<TransportGroup> leaders_;  // null on ranks that are not leaders
  std::optional<bool> ranks_connect_;        // set by the first call of connect_ranks()
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  std::optional<Failure> left_ DSC_GUARDED_BY(mutex_);  // the cause of leave()
  std::unique_ptr<TransportGroup> among_ranks_ DSC_GUARDED_BY(mutex_);
  std::map<std::pair<int, int>, std::unique_ptr<Pair>> pairs_ DSC_GUARDED_BY(mutex_);  // sender, receiver
};

}  // namespace dsc
