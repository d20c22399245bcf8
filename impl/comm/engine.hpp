// The interface between communicators and engines. An engine moves the data of operations. Every communicator
// has a group engine for host memory, and may also have a device engine. docs/extending.md describes how to
// add an engine. tests/conformance contains a small engine, and the test suite that every engine must pass.
//
// Functions with a body are optional: unsupported_reason(), learn_of(), on_status_query(), query_hosts(),
// query_rank(), register_memory(). An engine must implement all others.
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
  std::string name;        // if empty, derived from the parent's name
  int32_t timeout_ms = 0;  // 0 means the parent's time-out
  // The following members apply only to devices. With 0 or an empty text, the device's library chooses.
  int32_t min_ctas = 0;
  int32_t max_ctas = 0;
  int32_t stream_priority = 0;  // lower is more urgent
  std::string net_name = {};
};

// The interface that all engines have in common. Only one thread at a time may call an engine, except for
// functions marked "any thread".
class Engine {
 public:
  virtual ~Engine() = default;

  // Returns why this engine cannot run an operation; nullopt if it can. The text continues a sentence that
  // begins with the operation's name.
  virtual std::optional<std::string> unsupported_reason(const Call&) const { return std::nullopt; }
  // Throws UNSUPPORTED with that reason. Called before other ranks know about the call.
  void expect_supported(const Call& call) const {
    if (const auto reason = unsupported_reason(call)) fail(DSC_ERR_UNSUPPORTED, "%s", reason->c_str());
  }

  // Runs an operation to its end, and throws if it fails. On a device, only waits until the operation is on
  // its stream. The caller has checked the arguments.
  virtual void run(const Call& call) = 0;
  // Starts an operation without waiting for its end. Any thread may call this, if the caller keeps calls in
  // order.
  virtual std::shared_ptr<Work> start(const Call& call) = 0;

  // Collective. Returns zeroed memory of the kind in which the engine moves data fastest. release_memory() of
  // comm/memory.hpp frees it.
  virtual void* allocate(size_t bytes) = 0;

  // Returns true while an operation of this rank is running. Any thread.
  virtual bool has_running() noexcept = 0;

  // Collective. Waits until the operations of all ranks have ended.
  virtual void finalize() = 0;

  // May be read from any thread.
  StatsTable stats;
};

// Describes a group that an engine creates from an existing one. All ranks of the parent take part. `members`
// are ranks of the parent. If several groups are created by the same call, `members` differs between ranks.
struct NewGroup {
  OpKind kind = OpKind::kSplit;  // kSplit or kCreateGroup
  uint64_t tag = 0;              // equal on all ranks of the parent, as is `note`
  // Describes the arguments, for the error message if they differ between ranks.
  std::string note = {};
  std::vector<int32_t> members = {};
  uint64_t id = 0;
  std::string name = {};
  int timeout_ms = 0;
};

// The reply to a status query from a rank of another host.
struct Answer {
  int32_t rank = -1;
  std::string text;
};

// An engine for host memory. It also knows which ranks are alive, and decides whether the group has failed.
class GroupEngine : public Engine {
 public:
  // Collective. Lets operations move memory of the program without a copy in between. unregister_memory() of
  // comm/memory.hpp undoes it. On a failure, nothing has changed on any rank.
  virtual void register_memory(void*, size_t) {
    fail(DSC_ERR_UNSUPPORTED, "the engine does not share memory of the program between ranks");
  }

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
  // Returns true if reductions can check their inputs for NaNs and infinities.
  virtual bool checks_nonfinite() const noexcept = 0;

  // Drives the queued operations of this rank, in all groups of its world, on the calling thread. Returns
  // when one of them completes, when none remains, or when the deadline has passed. Returns true if none
  // remains. Any thread.
  virtual bool progress(Deadline deadline) = 0;
  // Resets the sequence, so that the next operation gets number 1. All ranks call this at the same point of
  // the program.
  virtual void restart_sequence() noexcept = 0;

  // --- The failure of the group. These functions may be called from any thread.

  // revoke() fails the group on all ranks. The next call on this rank reports the cause, unless
  // state.note_reported() was called because the program already knows the cause.
  virtual void revoke(const Failure& cause) noexcept = 0;
  virtual bool revoked() const noexcept = 0;
  // Returns the first cause of failure. Without a failure, the code is PEER_STALLED if processes of some
  // ranks are not running now, and the result names these ranks; otherwise the code is OK.
  virtual Failure failure() const = 0;
  // Fails the group on this rank. The other ranks learn the same cause independently of this call.
  virtual void learn_of(const Failure& cause) noexcept { revoke(cause); }

  // --- The end of the group. These functions may be called from any thread.

  // From now on, this rank takes part in no operations. If operations are still running, the group fails. A
  // second call does nothing.
  virtual void leave() noexcept = 0;
  // Called when this rank finalizes the world. Informs members that wait for this rank. Does nothing while
  // operations of this rank are running.
  virtual void leave_if_idle() noexcept = 0;

  // --- New groups.

  // make_group() is collective. It returns null on a rank that is not a member. It succeeds on all members or
  // on none.
  virtual std::shared_ptr<GroupEngine> make_group(const NewGroup& wanted) = 0;
  // Collective among the surviving ranks; may also be called after a failure. agree_on() returns the bitwise
  // AND of their flags, and shrink() returns a group of them. Both set state.missing().
  virtual int32_t agree_on(int32_t flags) = 0;
  virtual std::shared_ptr<GroupEngine> shrink(const GroupOptions& options) = 0;

  // --- Status queries between hosts. They serve engines whose operations the group engine does not compare.

  // Sets the handler that makes the answers of this rank, of at most 512 bytes. It runs on a thread that must
  // not block.
  using QueryHandler = std::function<std::string(const std::string& question)>;
  virtual void on_status_query(const QueryHandler&) {}
  // Send a status query of at most 64 bytes: query_hosts() to the first rank of each other host (at most 64
  // hosts), and query_rank() to one rank. For each sequence number, only the first rank that calls
  // query_hosts() sends the query. On other ranks, the call waits until the group has failed and returns
  // nothing. Any thread may call both; they take at most about three seconds.
  virtual std::vector<Answer> query_hosts(uint64_t, const std::string&) { return {}; }
  virtual std::vector<Answer> query_rank(int32_t, const std::string&) { return {}; }
};

// The engines of one communicator. `group` is null on a rank that is not a member.
struct Engines {
  std::shared_ptr<GroupEngine> group;
  std::shared_ptr<DeviceEngine> device;  // null if the communicator is not bound to a device
};

// An engine for the memory of one device. The communicator also has a group engine with the same ranks.
// Operations run in the order of their streams. An operation is ordered after all work that is already on the
// caller's stream.
class DeviceEngine : public Engine {
 public:
  virtual const DeviceContext& context() const noexcept = 0;

  // Returns true if the buffers are on this device, and false if they are in host memory. Throws INVALID_ARG
  // if a buffer is on another device, or if one call mixes host and device memory.
  virtual bool takes(const Call& call) = 0;
  // Adds a collective on host memory to the comparison of calls. All ranks must call it at the same position
  // among their calls on devices.
  virtual void note_host_call(const Call& call) = 0;
  // Run or start all calls as one operation. If one fails, the communicator fails.
  virtual void run_batch(std::span<const Call> calls) = 0;
  virtual std::shared_ptr<Work> start_batch(std::span<const Call> calls) = 0;

  // Collective. `make` creates the host part of the group, and this function adds the device part. A rank on
  // which `make` fails must also take part.
  using MakeGroup = std::function<std::shared_ptr<GroupEngine>()>;
  virtual Engines make_group(const MakeGroup& make, int32_t color, const GroupOptions& options) = 0;
  virtual Engines shrink(const GroupOptions& options) = 0;
  // Collective. Makes a group of the same ranks from a device library's communicator that the program has
  // created. Ranks keep their order in that communicator.
  virtual Engines adopt(void* communicator, const GroupOptions& options) = 0;

  // --- These functions may be called from any thread.

  // Returns the group's failure. It includes details that only this rank knows.
  virtual Failure failure() const = 0;
  // Called when the group has failed, to abort operations that are running here. Also called when this rank
  // leaves; operations then run to their end, within the time-out. Does not wait.
  virtual void give_up() noexcept = 0;
  // Waits until a communicator that the program created is no longer used here.
  virtual void await_adopted() const noexcept = 0;
};

// What the program requests about its device when it initializes the library.
struct DeviceRequest {
  // If false, a device is optional: it is used only if one was named or is in use.
  bool required = false;
  // -1 means the device in use, or one that is chosen by local rank.
  int32_t number = -1;
  std::map<std::string, std::string> settings = {};  // settings of the device's libraries, by name

  // Returns the value of a setting; empty if it was not given.
  std::string setting(const std::string& name) const {
    const auto found = settings.find(name);
    return found == settings.end() ? "" : found->second;
  }
};

}  // namespace dsc
