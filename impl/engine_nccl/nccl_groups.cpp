// Groups on devices. Each group has an engine with its own communicator of NCCL.
#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/groups.hpp"
#include "comm/outcome.hpp"
#include "engine_nccl/make_communicator.hpp"
#include "engine_nccl/nccl_engine.hpp"

namespace dsc {
namespace {

// Tags of exchanges among the ranks of a group. make_communicator.cpp uses other tags.
constexpr uint64_t kMadeTag = 3, kBusyTag = 4, kSplitTag = 5, kAdoptTag = 16;
constexpr uint64_t kFirstSplit = 16;  // step number of the first split; start-up uses lower numbers

NcclSettings settings_of(const GroupEngine& host, const GroupOptions& options) {
  return {host.name(), options.net_name, options.min_ctas, options.max_ctas};
}

// The program's NCCL communicator as one rank sees it.
struct Adopted {
  int32_t ranks = 0;
  int32_t rank = 0;
  Failure failure;
};

Adopted inspect(const NcclGroup& group, NcclComm* comm) {
  const NcclFunctions& nccl = group.world.nccl.library->functions;
  const DeviceScope scope(group.device());
  Adopted found;
  int device = -1;
  group.check(nccl.comm_count(comm, &found.ranks), "ncclCommCount");
  group.check(nccl.comm_user_rank(comm, &found.rank), "ncclCommUserRank");
  group.check(nccl.comm_cu_device(comm, &device), "ncclCommCuDevice");
  if (device != group.device().number())
    fail(DSC_ERR_INVALID_ARG,
         "rank %d: the NCCL communicator is on device %d, but this communicator is bound to device %d",
         group.host->rank(), device, group.device().number());
  return found;
}

void check_adopted(const std::vector<Adopted>& all) {
  std::vector<Failure> outcomes;
  std::vector<bool> seen(all.size());
  outcomes.reserve(all.size());
  for (const Adopted& one : all) outcomes.push_back(one.failure);
  if (const auto failure = first_failure(outcomes)) throw Error(*failure);
  for (size_t r = 0; r < all.size(); ++r) {
    const auto rank = static_cast<size_t>(all[r].rank);
    if (all[r].ranks != static_cast<int>(all.size()))
      fail(DSC_ERR_INVALID_ARG,
           "the NCCL communicator of rank %zu has %d ranks, expected %zu, the size of this communicator", r,
           all[r].ranks, all.size());
    if (rank >= all.size() || seen[rank])
      fail(DSC_ERR_INVALID_ARG,
           "the NCCL communicator of rank %zu has rank %d, expected 0 to %zu, and each rank once", r,
           all[r].rank, all.size() - 1);
    seen[rank] = true;
  }
}

}  // namespace

std::shared_ptr<NcclEngine> NcclEngine::create(const DeviceWorld& world,
                                               const std::shared_ptr<GroupEngine>& host, Deadline deadline) {
  return std::static_pointer_cast<NcclEngine>(make_part(world, host, nullptr, {}, deadline).device);
}

// Makes the device's part of a group from `communicator` or, if that is null, from a new one that all ranks
// make together. It succeeds on all ranks or on none.
Engines NcclEngine::make_part(const DeviceWorld& world, std::shared_ptr<GroupEngine> host,
                              std::shared_ptr<NcclCommunicator> communicator, const GroupOptions& options,
                              Deadline deadline) {
  NcclGroup group;
  group.world = world;
  group.host = host;
  group.settings = settings_of(*host, options);
  group.stream_priority = options.stream_priority;
  if (host->size() > 1) {
    group.published = make_published_calls(*host);
    group.communicator = communicator
                             ? std::move(communicator)
                             : make_communicator(world, *host, *group.published, group.settings, deadline);
  }
  std::shared_ptr<NcclEngine> made;
  run_on_all(*host, OpKind::kBind, kMadeTag, "", [&] {
    NcclEnding::expect_usable();
    made = std::make_shared<NcclEngine>(std::move(group));
    DeviceWatch::get().add({made, &made->monitor_});
  });
  host->restart_sequence();
  return {std::move(host), std::move(made)};
}

void NcclEngine::fail_split(const Error& error) noexcept {
  Call call;
  call.kind = OpKind::kSplit;
  failures_.fail_quietly(call, 0, error);
}

std::shared_ptr<NcclCommunicator> NcclEngine::split(int color, int key, const NcclSettings& settings) {
  const uint64_t step = kFirstSplit + splits_++;
  const NcclWait usual = ending_.wait_limits(0);
  const auto check = [&] {
    usual.check();
    if (group_.published->has_failed_step(step))
      fail(DSC_ERR_REVOKED, "another rank failed to split NCCL's communicator");
  };
  std::shared_ptr<NcclCommunicator> part;
  capture(
      [&] {
        // NCCL does not allow running operations during a split.
        works_.drain(DeviceWorks::Drain::kCollectives, usual.deadline);
        part = group_.communicator->split(color, key, settings, {usual.deadline, check});
      },
      [&](const Error& error) {
        group_.published->publish_failed_step(step);
        if (!group_.on_one_host()) fail_split(error);  // ranks of other hosts do not see the failed step
        throw Error(error);
      });
  return part;
}

// Collective among all ranks of this communicator. Returns null on ranks that join no group, or a group of
// one rank. An error leaves NCCL's communicator in an undefined state, so this communicator fails too.
std::shared_ptr<NcclCommunicator> NcclEngine::split_communicator(const GroupEngine* child, int32_t color,
                                                                 const GroupOptions& options) {
  GroupEngine& host = *group_.host;
  if (host.size() == 1 || !group_.world.nccl.library->functions.comm_split) return nullptr;
  // NCCL splits only idle communicators. If this communicator may be busy, each group makes a new one.
  const int32_t busy = launches_.may_be_busy() ? 1 : 0;
  if (std::ranges::max(gather_all(host, OpKind::kBind, kBusyTag, busy)) != 0) return nullptr;
  const bool takes_part = child && child->size() > 1;
  std::shared_ptr<NcclCommunicator> part;
  capture(
      [&] {
        run_on_all(host, OpKind::kBind, kSplitTag, "", [&] {
          NcclEnding::expect_usable();
          part = split(takes_part ? color : kNcclNoColor, takes_part ? child->rank() : 0,
                       takes_part ? settings_of(*child, options) : NcclSettings{});
        });
      },
      [&](const Error& error) {
        fail_split(error);
        failures_.note_reported();
        throw Error(error);
      });
  return part;
}

Engines NcclEngine::make_group(const MakeGroup& make, int32_t color, const GroupOptions& options) {
  std::shared_ptr<GroupEngine> child;
  std::shared_ptr<NcclCommunicator> part;
  std::optional<Error> error;
  capture([&] { child = make(); }, [&](const Error& thrown) { error.emplace(thrown); });
  capture([&] { part = split_communicator(child.get(), color, options); },
          [&](const Error& thrown) {
            if (!error) error.emplace(thrown);
          });
  if (error) throw Error(*error);
  if (!child) return {};
  const Deadline deadline = Deadline::after_ms(child->timeout_ms());
  return make_part(group_.world, std::move(child), std::move(part), options, deadline);
}

// The ranks exchange what they know of the program's communicator. An error on one rank, or a difference
// between ranks, then fails the call on all ranks.
Engines NcclEngine::adopt(void* communicator, const GroupOptions& options) {
  auto* const comm = static_cast<NcclComm*>(communicator);
  Adopted mine;
  capture([&] { mine = inspect(group_, comm); }, [&](const Error& error) { mine.failure = error.failure(); });
  const std::vector<Adopted> all = gather_all(*group_.host, OpKind::kBind, kAdoptTag, mine);
  check_adopted(all);
  auto child = split_group(*group_.host, 0, mine.rank, options);
  const Deadline deadline = Deadline::after_ms(child->timeout_ms());
  return make_part(group_.world, std::move(child), NcclCommunicator::adopt(group_.world.nccl, comm), options,
                   deadline);
}

// The survivors make a new NCCL communicator. ncclCommShrink on a revoked communicator reuses nothing of it
// (NCCL 2.28.9, ncclCommInitChildComm), so it would save only the exchange of an id.
Engines NcclEngine::shrink(const GroupOptions& options) {
  auto rest = group_.host->shrink(options);
  const Deadline deadline = Deadline::after_ms(rest->timeout_ms());
  return make_part(group_.world, std::move(rest), nullptr, options, deadline);
}

}  // namespace dsc
