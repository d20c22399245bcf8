#include "session/engine_table.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include "base/error.hpp"
#include "engine_hier/hier_engine.hpp"
#include "engine_host/host_engine.hpp"
#include "engine_host/progress.hpp"
#include "engine_nccl/bind.hpp"
#include "engine_nccl/interface_advice.hpp"
#include "engine_nccl/report.hpp"

namespace dsc {
namespace {

bool has_several_hosts(const JoinedWorld& joined) { return joined.host->layout().host_count() > 1; }

std::shared_ptr<GroupEngine> open_hier(JoinedWorld joined) {
  if (joined.backend == DSC_BACKEND_HOST)
    fail(DSC_ERR_UNSUPPORTED,
         "backend is host, but the job has %d hosts: leave it at auto, or set inter_host",
         joined.host->layout().host_count());
  const HostGroup& host = *joined.host;
  const int timeout_ms = joined.local->timeout_ms();
  const std::string address = joined.job->own_address(joined.deadline);
  auto hosts = std::make_shared<HierWorld>(std::move(joined.job), host.layout(), address);
  const int rank = host.global_rank(host.rank());
  hosts->begin_control(joined.host, joined.stall_timeout_ms, joined.deadline);
  std::vector<int32_t> everybody(hosts->layout().host_of_rank.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  HierLayout layout(std::move(everybody), hosts->layout(), rank);
  auto engine = HierEngine::create(hosts, std::move(joined.local), std::move(layout), kWorldId, "world",
                                   timeout_ms, joined.deadline);
  hosts->end_start_up();
  return engine;
}

bool serves_all(const JoinedWorld&) { return true; }

// Ranks of one host no longer need the store. They keep its port open, because the port serves as the name of
// the world.
std::shared_ptr<GroupEngine> open_host(JoinedWorld joined) {
  if (joined.job) joined.host->hold_name(joined.job);
  return std::move(joined.local);
}

bool progress_host(Deadline deadline) { return make_progress({}, 0, deadline); }

void needs_no_library(LibraryReport&) {}

constexpr std::array kGroupLibraries = {
    GroupLibrary{"hier", nullptr, has_several_hosts, open_hier, nullptr},
    GroupLibrary{"host", needs_no_library, serves_all, open_host, progress_host},
};

constexpr std::array kDeviceLibraries = {
    DeviceLibrary{"nccl", DSC_HAS_NCCL, look_for_nccl, bind_nccl, interface_advice},
};

using ProgressAll = bool (*)(Deadline);

std::vector<ProgressAll> engines_with_progress() {
  std::vector<ProgressAll> all;
  if (&added_group_library) all.push_back(added_group_library().progress);
  for (const GroupLibrary& library : group_libraries()) all.push_back(library.progress);
  std::erase(all, nullptr);
  return all;
}

constexpr int kTurnMs = 1;

}  // namespace

std::span<const GroupLibrary> group_libraries() noexcept { return kGroupLibraries; }

std::shared_ptr<GroupEngine> open_group_engine(JoinedWorld joined) {
  if (&added_group_library && added_group_library().serves(joined))
    return added_group_library().open(std::move(joined));
  for (const GroupLibrary& library : group_libraries())
    if (library.serves(joined)) return library.open(std::move(joined));
  fail(DSC_ERR_INTERNAL, "no engine serves the world");
}

bool progress_all(Deadline deadline) {
  static const std::vector<ProgressAll> all = engines_with_progress();
  if (all.size() == 1) return all[0](deadline);
  std::vector<ProgressAll> busy;
  std::ranges::remove_copy_if(all, std::back_inserter(busy), [](ProgressAll of) { return of(Deadline{0}); });
  if (busy.size() == 1) return busy[0](deadline);
  bool idle = true;  // several engines take turns, and the caller calls this function repeatedly
  for (const ProgressAll progress : busy) idle &= progress(sooner(deadline, Deadline::after_ms(kTurnMs)));
  return idle;
}

std::vector<DeviceLibrary> device_libraries() {
  std::vector<DeviceLibrary> libraries;
  std::ranges::copy_if(kDeviceLibraries, std::back_inserter(libraries), &DeviceLibrary::available);
  return libraries;
}

std::vector<ReportedEngine> reported_engines() {
  std::vector<ReportedEngine> reported;
  if (&added_group_library)
    reported.push_back({added_group_library().name, true, added_group_library().look});
  for (const GroupLibrary& library : group_libraries())
    if (library.look) reported.push_back({library.name, true, library.look});
  for (const DeviceLibrary& library : kDeviceLibraries)
    reported.push_back({library.name, library.available, library.look});
  return reported;
}

}  // namespace dsc
