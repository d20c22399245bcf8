// The engines of this build. A new engine is one more line in engine_table.cpp; features and reports follow
// from it.
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

// What start-up has prepared when it needs the engine of a world.
struct JoinedWorld {
  std::shared_ptr<HostGroup> host;
  std::shared_ptr<HostEngine> local;  // the ranks of this host
  std::shared_ptr<JobStore> job;      // null unless ranks have met over TCP
  int32_t backend;                    // what the program has asked for
  int stall_timeout_ms;
  Deadline deadline;
};

// A kind of group engine.
struct GroupLibrary {
  const char* name;
  LookForLibrary look;  // null: it is reported as the library that it needs
  bool (*serves)(const JoinedWorld& joined);
  // Collective.
  std::shared_ptr<GroupEngine> (*open)(JoinedWorld joined);
  // Does the same as GroupEngine::progress(), for all worlds of this process; null: another engine does it
  // for this one.
  bool (*progress)(Deadline deadline);
};

// The first one that supports a world is used; the last one supports every world.
std::span<const GroupLibrary> group_libraries() noexcept;

// Tried before the others. Only test programs define it.
[[gnu::weak]] const GroupLibrary& added_group_library() noexcept;

std::shared_ptr<GroupEngine> open_group_engine(JoinedWorld joined);

// Does the same as GroupEngine::progress(), for all worlds of this process.
bool progress_all(Deadline deadline);

// A library that moves data between devices.
struct DeviceLibrary {
  const char* name;
  bool available;  // in this build
  LookForLibrary look;
  // Collective: either all ranks are bound, each to one device, or none is, and this returns null. Throws
  // NO_BACKEND on all ranks if a device is required and one rank has none.
  std::shared_ptr<DeviceEngine> (*bind)(const std::shared_ptr<GroupEngine>& host,
                                        const DeviceRequest& request, const Environment& environment,
                                        Deadline deadline);
  // Returns a sentence of advice before this rank contacts other ranks, or an empty text. Never throws.
  std::string (*advice)(const Launch& launch, const Environment& environment, Deadline deadline);
};

// The libraries in the order in which they are tried; equal on all ranks.
std::vector<DeviceLibrary> device_libraries();

// The engines by name, for features and reports.
struct ReportedEngine {
  const char* name;
  bool available;  // in this build
  LookForLibrary look;
};
std::vector<ReportedEngine> reported_engines();

}  // namespace dsc
