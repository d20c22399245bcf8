#include "engine_nccl/make_communicator.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "comm/memory.hpp"
#include "comm/outcome.hpp"
#include "control/memory.hpp"
#include "engine_nccl/nccl_ending.hpp"

namespace dsc {
namespace {

constexpr int kRanksPerRoot = 128;
constexpr int kAttempts = 2;
// Tags of exchanges among the ranks of `host`. nccl_groups.cpp uses other tags.
constexpr uint64_t kMembersTag = 1, kIdTag = 2, kOutcomeTag = 5;

struct RootId {
  NcclUniqueId id{};
  int32_t is_root = 0;
  int32_t scales = 0;  // 1: this rank's library takes several ids
  Failure failure;
};

// Returns one id for every kRanksPerRoot ranks if all libraries can use several, otherwise a single one.
std::vector<NcclUniqueId> agree_on_ids(GroupEngine& host, const NcclLibrary& library) {
  RootId mine;
  mine.scales = library.functions.comm_init_rank_scalable != nullptr;
  mine.is_root = host.rank() % kRanksPerRoot == 0;
  capture(
      [&] {
        if (mine.is_root) mine.id = make_unique_id(library);
      },
      [&](const Error& error) { mine.failure = error.failure(); });
  const std::vector<RootId> all = gather_all(host, OpKind::kBind, kIdTag, mine);
  std::vector<Failure> outcomes;
  outcomes.reserve(all.size());
  for (const RootId& root : all) outcomes.push_back(root.failure);
  if (const auto failure = first_failure(outcomes)) throw Error(*failure);
  const bool several = std::ranges::all_of(all, [](const RootId& root) { return root.scales != 0; });
  std::vector<NcclUniqueId> ids;
  for (const RootId& root : all)
    if (root.is_root && (several || ids.empty())) ids.push_back(root.id);
  return ids;
}

// Makes NCCL's communicator. Ranks of the same host notice immediately that a rank has failed. Ranks of other
// hosts notice it when the deadline passes.
std::shared_ptr<NcclCommunicator> try_to_make(const DeviceWorld& world, GroupEngine& host,
                                              PublishedCalls& published, const NcclSettings& settings,
                                              uint64_t attempt, Deadline deadline) {
  const std::vector<NcclUniqueId> ids = agree_on_ids(host, *world.nccl.library);
  const auto check = [&] {
    if (host.revoked()) throw Error(host.failure());
    if (published.has_failed_step(attempt))
      fail(DSC_ERR_REVOKED, "another rank failed to make NCCL's communicator");
  };
  std::shared_ptr<NcclCommunicator> made;
  Failure mine;
  capture(
      [&] {
        NcclEnding::expect_usable();
        made =
            NcclCommunicator::create(world.nccl, ids, host.size(), host.rank(), settings, {deadline, check});
      },
      [&](const Error& error) {
        mine = error.failure();
        published.publish_failed_step(attempt);
      });
  const auto failure = first_failure(gather_all(host, OpKind::kBind, kOutcomeTag + attempt, mine));
  if (!failure) return made;
  throw Error(*failure);
}

}  // namespace

std::shared_ptr<PublishedCalls> make_published_calls(GroupEngine& host) {
  const LocalMembers members = host.state.local();
  int32_t most = members.group->size();
  if (most != host.size()) most = std::ranges::max(gather_all(host, OpKind::kBind, kMembersTag, most));
  void* const memory = host.allocate(PublishedCalls::bytes(most));
  auto allocation = members.group->host().memory().holder(memory);
  release_memory(memory);  // the shared pointer keeps the memory
  return std::make_shared<PublishedCalls>(host.id(), std::move(allocation), members);
}

std::shared_ptr<NcclCommunicator> make_communicator(const DeviceWorld& world, GroupEngine& host,
                                                    PublishedCalls& published, const NcclSettings& settings,
                                                    Deadline end) {
  for (uint64_t attempt = 1;; ++attempt) {
    const Deadline deadline =
        attempt == kAttempts ? end : Deadline::after_ms(std::max<int64_t>(end.remaining_ms() / 2, 1));
    std::shared_ptr<NcclCommunicator> made;
    const bool done =
        capture([&] { made = try_to_make(world, host, published, settings, attempt, deadline); },
                [&](const Error& error) {
                  if (attempt == kAttempts || host.revoked()) throw Error(error);
                  log(DSC_LOG_LEVEL_WARN,
                      "group \"%s\": NCCL's start-up failed and is tried once more with a new id: %s",
                      host.name().c_str(), error.what());
                });
    if (done) return made;
  }
}

}  // namespace dsc
