// Adds the conformance engine before the engines of a libdsc, for worlds whose ranks are threads of one
// process.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "comm/gather.hpp"
#include "control/host_group.hpp"
#include "engine.hpp"
#include "engine_host/host_engine.hpp"
#include "session/engine_table.hpp"

namespace dsc {
namespace {

using conformance::Engine;
using conformance::SharedGroup;

void needs_no_library(LibraryReport&) {}

bool serves_threads(const JoinedWorld& joined) {
  return std::ranges::all_of(joined.host->members(),
                             [](const auto& member) { return member.pid == ::getpid(); });
}

// Rank 0 creates the shared object. Its pointer stays valid until the second exchange has ended, because the
// other ranks read it there.
std::shared_ptr<SharedGroup> share(GroupEngine& host) {
  std::shared_ptr<SharedGroup> group;
  if (host.rank() == 0)
    group =
        conformance::SharedWorld::make(host.state.info()->progress_thread)->join(host.id(), host.size(), 1);
  const auto places = gather_all(host, OpKind::kBind, 0, reinterpret_cast<uintptr_t>(&group));
  if (host.rank() != 0) group = *reinterpret_cast<const std::shared_ptr<SharedGroup>*>(places[0]);
  gather_all(host, OpKind::kBind, 1, uint8_t{1});
  return group;
}

std::shared_ptr<GroupEngine> open_conformance(JoinedWorld joined) {
  if (joined.job) joined.host->hold_name(joined.job);
  const std::shared_ptr<GroupEngine> host = std::move(joined.local);
  CommIdentity identity{host->id(), host->name(), host->rank(), host->state.global_ranks()};
  return std::make_shared<Engine>(std::move(identity), share(*host),
                                  std::make_shared<conformance::RankLoad>(), host, host->state.info(),
                                  host->timeout_ms());
}

}  // namespace

const GroupLibrary& added_group_library() noexcept {
  static constexpr GroupLibrary kConformance{"conformance", needs_no_library, serves_threads,
                                             open_conformance, conformance::progress_all};
  return kConformance;
}

}  // namespace dsc
