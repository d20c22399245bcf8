// Makes communicators of NCCL on all ranks together, with one more attempt if the first one fails.
#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "comm/groups.hpp"
#include "comm/memory.hpp"
#include "comm/outcome.hpp"
#include "control/memory.hpp"
#include "engine_nccl/device_watch.hpp"
#include "engine_nccl/nccl_engine.hpp"

namespace dsc {
namespace {

constexpr int kRanksPerRoot = 128;
constexpr int kAttempts = 2;
constexpr uint64_t kMembersTag = 1, kIdTag = 2, kMadeTag = 3, kBusyTag = 4, kOutcomeTag = 5, kAdoptTag = 16;

// Allocates the memory in which the ranks of this host publish their calls. Its size is equal on all hosts.
std::shared_ptr<PublishedCalls> make_board(GroupEngine& host) {
  const LocalMembers members = host.state.local();
  int32_t most = members.group->size();
  if (most != host.size()) most = std::ranges::max(gather_all(host, OpKind::kBind, kMembersTag, most));
  void* const memory = host.allocate(PublishedCalls::bytes(most));
  auto allocation = members.group->world().memory().holder(memory);
  release_memory(memory);  // the shared pointer keeps the memory
  return std::make_shared<PublishedCalls>(host.id(), std::move(allocation), members);
}

struct RootId {
  NcclUniqueId id{};
  int32_t is_root = 0;
  int32_t scales = 0;  // 1: this rank's library takes several ids
  Outcome outcome;
};

// Returns one id for every kRanksPerRoot ranks if all libraries can use several, else a single one.
std::vector<NcclUniqueId> agree_on_ids(GroupEngine& host, const NcclLibrary& library) {
  RootId mine;
  mine.scales = library.functions.comm_init_rank_scalable != nullptr;
  mine.is_root = host.rank() % kRanksPerRoot == 0;
  capture(
      [&] {
        if (mine.is_root) mine.id = make_unique_id(library);
      },
      [&](const Error& error) { mine.outcome = outcome_of(error); });
  const std::vector<RootId> all = gather_all(host, OpKind::kBind, kIdTag, mine);
  std::vector<Outcome> outcomes;
  outcomes.reserve(all.size());
  for (const RootId& root : all) outcomes.push_back(root.outcome);
  if (const auto failure = first_failure(outcomes)) throw Error(*failure);
  const bool several = std::ranges::all_of(all, [](const RootId& root) { return root.scales != 0; });
  std::vector<NcclUniqueId> ids;
  for (const RootId& root : all)
    if (root.is_root && (several || ids.empty())) ids.push_back(root.id);
  return ids;
}

NcclSettings settings_of(const GroupEngine& host, const GroupOptions& options) {
  return {host.name(), options.net_name, options.min_ctas, options.max_ctas};
}

// Makes NCCL's communicator. A rank that fails is noticed at once on its own host, and on other hosts when
// the deadline passes.
std::shared_ptr<NcclCommunicator> try_to_make(const DeviceWorld& world, GroupEngine& host,
                                              PublishedCalls& board, const NcclSettings& settings,
                                              uint64_t attempt, Deadline deadline) {
  const std::vector<NcclUniqueId> ids = agree_on_ids(host, *world.nccl.library);
  const auto check = [&] {
    if (host.revoked()) fail_with(host.failure());
    if (board.in_trouble(attempt)) fail(DSC_ERR_REVOKED, "another rank failed to make NCCL's communicator");
  };
  std::shared_ptr<NcclCommunicator> made;
  Outcome mine;
  capture(
      [&] {
        NcclEngine::expect_usable();
        made =
            NcclCommunicator::create(world.nccl, ids, host.size(), host.rank(), settings, {deadline, check});
      },
      [&](const Error& error) {
        mine = outcome_of(error);
        board.tell_trouble(attempt);
      });
  const auto failure = first_failure(gather_all(host, OpKind::kBind, kOutcomeTag + attempt, mine));
  if (!failure) return made;
  throw Error(*failure);
}

std::shared_ptr<NcclCommunicator> make_communicator(const DeviceWorld& world, GroupEngine& host,
                                                    PublishedCalls& board, const NcclSettings& settings,
                                                    Deadline end) {
  for (uint64_t attempt = 1;; ++attempt) {
    const Deadline deadline =
        attempt == kAttempts ? end : Deadline::after_ms(std::max<int64_t>(end.remaining_ms() / 2, 1));
    std::shared_ptr<NcclCommunicator> made;
    const bool done =
        capture([&] { made = try_to_make(world, host, board, settings, attempt, deadline); },
                [&](const Error& error) {
                  if (attempt == kAttempts || host.revoked()) throw Error(error);
                  log(DSC_LOG_WARN, "group \"%s\": NCCL's start-up failed, once more with a fresh id: %s",
                      host.name().c_str(), error.what());
                });
    if (done) return made;
  }
}

// The program's NCCL communicator as one rank sees it.
struct Adopted {
  int32_t ranks = 0;
  int32_t rank = 0;
  Outcome outcome;
};

Adopted look_at_adopted(const NcclEngine& engine, NcclComm* comm) {
  const NcclFunctions& nccl = engine.world().nccl.library->functions;
  const DeviceScope scope(engine.device());
  Adopted found;
  int device = -1;
  engine.check_nccl(nccl.comm_count(comm, &found.ranks), "ncclCommCount");
  engine.check_nccl(nccl.comm_user_rank(comm, &found.rank), "ncclCommUserRank");
  engine.check_nccl(nccl.comm_cu_device(comm, &device), "ncclCommCuDevice");
  if (device != engine.device().number())
    fail(DSC_ERR_INVALID_ARG,
         "rank %d: nccl_comm is on device %d, but this communicator is bound to device %d",
         engine.host().rank(), device, engine.device().number());
  return found;
}

void check_adopted(const std::vector<Adopted>& all) {
  std::vector<Outcome> outcomes;
  std::vector<bool> seen(all.size());
  outcomes.reserve(all.size());
  for (const Adopted& one : all) outcomes.push_back(one.outcome);
  if (const auto failure = first_failure(outcomes)) throw Error(*failure);
  for (size_t r = 0; r < all.size(); ++r) {
    const auto rank = static_cast<size_t>(all[r].rank);
    if (all[r].ranks != static_cast<int>(all.size()))
      fail(DSC_ERR_INVALID_ARG,
           "nccl_comm of rank %zu has %d ranks, expected those of this communicator: %zu", r, all[r].ranks,
           all.size());
    if (rank >= all.size() || seen[rank])
      fail(DSC_ERR_INVALID_ARG, "nccl_comm of rank %zu has rank %d there, which another rank has as well", r,
           all[r].rank);
    seen[rank] = true;
  }
}

}  // namespace

std::shared_ptr<NcclEngine> NcclEngine::create(const DeviceWorld& world,
                                               const std::shared_ptr<GroupEngine>& host, Deadline deadline) {
  return std::static_pointer_cast<NcclEngine>(finish(world, host, nullptr, {}, deadline).device);
}

// Makes the device's side of a group from `communicator` or, if that is null, from a new one that all ranks
// make together. It succeeds on all ranks or on none.
Engines NcclEngine::finish(const DeviceWorld& world, std::shared_ptr<GroupEngine> host,
                           std::shared_ptr<NcclCommunicator> communicator, const GroupOptions& options,
                           Deadline deadline) {
  NcclParts parts;
  parts.world = world;
  parts.host = host;
  parts.settings = settings_of(*host, options);
  parts.stream_priority = options.stream_priority;
  if (host->size() > 1) {
    parts.board = make_board(*host);
    parts.communicator = communicator
                             ? std::move(communicator)
                             : make_communicator(world, *host, *parts.board, parts.settings, deadline);
  }
  std::shared_ptr<NcclEngine> made;
  run_on_all(*host, OpKind::kBind, kMadeTag, "", [&] {
    expect_usable();
    made = std::make_shared<NcclEngine>(std::move(parts));
    DeviceWatch::get().add(made);
  });
  host->restart_numbers();
  return {std::move(host), std::move(made)};
}

// Collective among all ranks of this communicator; returns null for ranks that are in no group of several
// ranks. An error leaves NCCL's communicator undefined, so it fails this communicator.
std::shared_ptr<NcclCommunicator> NcclEngine::split_communicator(const GroupEngine* child, int32_t color,
                                                                 const GroupOptions& options) {
  if (host_->size() == 1 || !world_.nccl.library->functions.comm_split) return nullptr;
  // NCCL splits only idle communicators. Otherwise each group makes a new one.
  const int32_t busy = may_be_busy_ ? 1 : 0;
  if (std::ranges::max(gather_all(*host_, OpKind::kBind, kBusyTag, busy)) != 0) return nullptr;
  const bool takes_part = child && child->size() > 1;
  std::shared_ptr<NcclCommunicator> part;
  capture(
      [&] {
        run_on_all(*host_, OpKind::kBind, kOutcomeTag, "", [&] {
          expect_usable();
          part = split(takes_part ? color : kNcclNoColor, takes_part ? child->rank() : 0,
                       takes_part ? settings_of(*child, options) : NcclSettings{});
        });
      },
      [&](const Error& error) {
        Call call;
        call.kind = OpKind::kSplit;
        fail_quietly(call, 0, error);
        note_told();
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
  return finish(world_, std::move(child), std::move(part), options, deadline);
}

// The ranks exchange what they see of the program's communicator, so that an error on one rank or a
// difference between ranks fails the call on all of them.
Engines NcclEngine::adopt(void* communicator, const GroupOptions& options) {
  auto* const comm = static_cast<NcclComm*>(communicator);
  Adopted mine;
  capture([&] { mine = look_at_adopted(*this, comm); },
          [&](const Error& error) { mine.outcome = outcome_of(error); });
  const std::vector<Adopted> all = gather_all(*host_, OpKind::kBind, kAdoptTag, mine);
  check_adopted(all);
  auto child = split_group(*host_, 0, mine.rank, options);
  const Deadline deadline = Deadline::after_ms(child->timeout_ms());
  return finish(world_, std::move(child), NcclCommunicator::adopt(world_.nccl, comm), options, deadline);
}

// The survivors make a new NCCL communicator: ncclCommShrink of a revoked one shares nothing with it (NCCL
// 2.28.9, ncclCommInitChildComm), so it would save only the exchange of an id.
Engines NcclEngine::shrink(const GroupOptions& options) {
  auto rest = host_->shrink(options);
  const Deadline deadline = Deadline::after_ms(rest->timeout_ms());
  return finish(world_, std::move(rest), nullptr, options, deadline);
}

}  // namespace dsc
