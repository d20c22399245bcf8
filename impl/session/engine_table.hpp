// The engines of this build. A new engine needs one more line in engine_table.cpp. The lists of features and
// the reports use the same table.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "comm/engine.hpp"
#include "comm/library_report.hpp"

namespace dsc {

class HostEngine;
class JobStore;
struct Launch;
class HostGroup;

// What start-up has prepared before it opens the engine of a world.
struct JoinedWorld {
  std::shared_ptr<HostGroup> host;
  std::shared_ptr<HostEngine> local;  // the ranks of this host
  std::shared_ptr<JobStore> job;      // null if the ranks have not met over TCP
  int32_t backend;                    // DSC_BACKEND_..., as the program has requested it
  int stall_timeout_ms;
  Deadline deadline;
};

// A group engine that this build can use.
struct GroupLibrary {
  const char* name;
  LookForLibrary look;  // null if reports list the library that this engine needs, and not the engine
  bool (*serves)(const JoinedWorld& joined);
  // Collective.
  std::shared_ptr<GroupEngine> (*open)(JoinedWorld joined);
  // Does the same as GroupEngine::progress(), for all worlds of this process. Null if the progress of another
  // engine includes that of this engine.
  bool (*progress)(Deadline deadline);
};

// The group engines in order of preference. The first engine that supports a world is used. The last one
// supports every world.
std::span<const GroupLibrary> group_libraries() noexcept;

// A group engine that is tried before all others. Only test programs define it.
[[gnu::weak]] const GroupLibrary& added_group_library() noexcept;

std::shared_ptr<GroupEngine> open_group_engine(JoinedWorld joined);

// Does the same as GroupEngine::progress(), for all worlds of this process.
bool progress_all(Deadline deadline);

// A library that moves data between devices.
struct DeviceLibrary {
  const char* name;
  bool available;  // whether this build contains it
  LookForLibrary look;
  // Collective. Either binds each rank to one device, or binds no rank and returns null. Throws NO_BACKEND on
  // all ranks if a device is required and a rank has none.
  std::shared_ptr<DeviceEngine> (*bind)(const std::shared_ptr<GroupEngine>& host,
                                        const DeviceRequest& request, const Environment& environment,
                                        Deadline deadline);
  // Returns advice for the user in one sentence, or an empty text. Called before this rank contacts other
  // ranks. Never throws.
  std::string (*advice)(const Launch& launch, const Environment& environment, Deadline deadline);
};

// The libraries in the order in which they are tried. The order is equal on all ranks.
std::vector<DeviceLibrary> device_libraries();

// An engine as it is listed in features and reports.
struct ReportedEngine {
  const char* name;
  bool available;  // whether this build contains it
  LookForLibrary look;
};
std::vector<ReportedEngine> reported_engines();

}  // namespace dsc
