// The seam between communicators and engines. An engine moves the data of operations. A communicator has a
// group engine for host memory, and may have a device engine too. docs/extending.md describes how to add an
// engine; tests/conformance contains a small one and the suite that every engine passes.
//
// Functions with a body here are optional: unsupported_reason(), learn_of(), on_status_query(),
// query_hosts(), query_rank(). An engine implements all others.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/comm_state.hpp"
#include "comm/stats.hpp"
#include "comm/work.hpp"
#include "control/call.hpp"

namespace dsc {

class Comm;
class DeviceEngine;
class GroupEngine;
struct DeviceContext;

struct GroupOptions {
  std::string name;        // empty: derived from the parent's name
  int32_t timeout_ms = 0;  // 0: the parent's
  // The following apply to devices only; 0 and empty leave the choice to the device's library.
  int32_t min_ctas = 0;
  int32_t max_ctas = 0;
  int32_t stream_priority = 0;  // lower is more urgent
  std::string net_name = {};
};

// What every engine does. One thread at a time may call it, except for functions marked "any thread".
class Engine {
 public:
  virtual ~Engine() = default;

  // Returns why this engine cannot run an operation, as a text to follow the operation's name; nullopt if it
  // can.
  virtual std::optional<std::string> unsupported_reason(const Call&) const { return std::nullopt; }
  // Throws UNSUPPORTED with that reason. Called before other ranks learn of the call.
  void expect_supported(const Call& call) const {
    if (const auto reason = unsupported_reason(call)) fail(DSC_ERR_UNSUPPORTED, "%s", reason->c_str());
  }

  // Runs an operation to its end (on a device: until it is on its stream) and throws its failure. The caller
  // has checked the arguments.
  virtual void run(const Call& call) = 0;
  // Begins an operation. Any thread, if the caller keeps the calls in order.
  virtual std::shared_ptr<Work> start(const Call& call) = 0;

  // Collective: returns zeroed memory in which the engine moves data fastest. release_memory() of
  // comm/memory.hpp frees it.
  virtual void* allocate(size_t bytes) = 0;

  // True while an operation of this rank runs. Any thread.
  virtual bool has_running() noexcept = 0;

  // Collective: waits until the operations of all ranks have ended.
  virtual void finalize() = 0;

  // Any thread may read it.
  StatsTable stats;
};

// A group that an engine is to make from its own. All ranks of the parent take part. `members` are ranks of
// the parent; they differ between ranks if several groups are made at once.
struct NewGroup {
  OpKind kind = OpKind::kSplit;  // or kCreateGroup
  uint64_t tag = 0;              // with `note`, equal on all ranks of the parent
  std::string note = {};         // describes the arguments in a mismatch
  std::vector<int32_t> members = {};
  uint64_t id = 0;
  std::string name = {};
  int timeout_ms = 0;
};

// The reply of a rank of another host to a status query.
struct Answer {
  int32_t rank = -1;
  std::string text;
};

// An engine for host memory. It also knows which ranks are alive, and decides when the group has failed.
class GroupEngine : public Engine {
 public:
  GroupEngine(CommIdentity identity, LocalMembers local, std::shared_ptr<const WorldInfo> info,
              int timeout_ms)
      : state(std::move(identity), std::move(local), std::move(info), timeout_ms) {}

  CommState state;
  int rank() const noexcept { return state.rank(); }
  int size() const noexcept { return state.size(); }
  uint64_t id() const noexcept { return state.id(); }
  const std::string& name() const noexcept { return state.name(); }
  int timeout_ms() const noexcept { return state.timeout_ms(); }

  virtual int32_t backend() const noexcept = 0;  // dsc_backend_t
  // Returns whether reductions can check their inputs for NaNs and infinities.
  virtual bool checks_nonfinite() const noexcept = 0;

  // Drives the queued operations of this rank in all groups of its world on the calling thread, until one
  // of them completes, none is left, or the deadline has passed. Returns true if none is left. Any thread.
  virtual bool progress(Deadline deadline) = 0;
  // Gives the next operation the sequence number 1, as if there had been none before. All ranks call this at
  // the same point.
  virtual void restart_sequence() noexcept = 0;

  // --- The failure of the group. Any thread.
  // revoke() fails it on all ranks. The next call on this rank reports the cause, unless the caller notes in
  // the state that the program knows it.
  virtual void revoke(const Failure& cause) noexcept = 0;
  virtual bool revoked() const noexcept = 0;
  // Returns the first cause. If there is none, returns PEER_STALLED with the ranks that do not run now, or
  // code OK.
  virtual Failure failure() const = 0;
  // Fails the group on this rank with a cause that its other ranks also learn.
  virtual void learn_of(const Failure& cause) noexcept { revoke(cause); }

  // --- The end. Any thread.
  // This rank takes part in no further operation; operations that still run fail the group. A second call
  // does nothing.
  virtual void leave() noexcept = 0;
  // Called when this rank finalizes the world: tells the members that wait for it. Does nothing while
  // operations of this rank are running.
  virtual void leave_if_idle() noexcept = 0;

  // --- Groups. Collective. Returns null for a rank that is not a member. Succeeds on all members or on none.
  virtual std::shared_ptr<GroupEngine> make_group(const NewGroup& wanted) = 0;
  // Collective among the living ranks, also after a failure. agree_on() returns the bitwise AND of their
  // flags, shrink() a group of them. Both set state.missing().
  virtual int32_t agree_on(int32_t flags) = 0;
  virtual std::shared_ptr<GroupEngine> shrink(const GroupOptions& options) = 0;

  // --- Status queries between hosts, for engines whose operations are not compared here.
  // Sets how this rank answers, in at most 512 bytes. The handler runs on a thread that must not wait.
  using QueryHandler = std::function<std::string(const std::string& question)>;
  virtual void on_status_query(const QueryHandler&) {}
  // Send a status query of at most 64 bytes to the first rank of each other host (at most 64 hosts), or to
  // one rank. For each sequence number, only the first rank that calls query_hosts() asks; on the others it
  // waits for the group's failure and returns nothing. Any thread; takes at most about three seconds.
  virtual std::vector<Answer> query_hosts(uint64_t, const std::string&) { return {}; }
  virtual std::vector<Answer> query_rank(int32_t, const std::string&) { return {}; }
};

// The engines of one communicator. `group` is null on a rank that is not a member.
struct Engines {
  std::shared_ptr<GroupEngine> group;
  std::shared_ptr<DeviceEngine> device;  // null if the communicator is not bound to a device
};

// An engine for memory of one device, next to the group engine with the same ranks. Its operations run in the
// order of their streams. An operation that it starts is ordered after the work that is already on the
// caller's stream.
class DeviceEngine : public Engine {
 public:
  virtual const DeviceContext& context() const noexcept = 0;

  // Returns true if the buffers are on this device, false if they are in host memory. Throws INVALID_ARG if
  // one call mixes both, and for buffers on another device.
  virtual bool takes(const Call& call) = 0;
  // Enters a collective on host memory into the comparison of calls: all ranks must call it at the same
  // position among their calls on devices.
  virtual void note_host_call(const Call& call) = 0;
  // Run or start all calls as one operation. If one fails, the communicator fails.
  virtual void run_batch(std::span<const Call> calls) = 0;
  virtual std::shared_ptr<Work> start_batch(std::span<const Call> calls) = 0;

  // Collective: `make` makes the host part of the group, and this adds the device part. Ranks whose `make`
  // fails take part nevertheless.
  using MakeGroup = std::function<std::shared_ptr<GroupEngine>()>;
  virtual Engines make_group(const MakeGroup& make, int32_t color, const GroupOptions& options) = 0;
  virtual Engines shrink(const GroupOptions& options) = 0;
  // Collective: makes a group of the same ranks that uses a communicator of the program, in the order of its
  // ranks.
  virtual Engines adopt(void* communicator, const GroupOptions& options) = 0;

  // --- Any thread.
  // Returns the group's failure, with details that only this rank knows.
  virtual Failure failure() const = 0;
  // Called when the group has failed: aborts operations that run here. Also called when this rank leaves:
  // then operations run to their end, within the time-out. Does not wait.
  virtual void give_up() noexcept = 0;
  // Waits until a communicator of the program is detached.
  virtual void await_adopted() const noexcept = 0;
};

// What a program asks of a device at start-up.
struct DeviceRequest {
  bool required = false;                             // false: only if a device was named or is in use
  int32_t number = -1;                               // -1: the device in use, or by local rank
  std::map<std::string, std::string> settings = {};  // of the device's libraries, by name

  // Returns the value of a setting; empty if it was not given.
  std::string setting(const std::string& name) const {
    const auto found = settings.find(name);
    return found == settings.end() ? "" : found->second;
  }
};

}  // namespace dsc
