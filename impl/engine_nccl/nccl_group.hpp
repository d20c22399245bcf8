// The data that all parts of one device engine share.
#pragma once

#include <memory>
#include <string>

#include "base/error.hpp"
#include "comm/engine.hpp"
#include "engine_nccl/device_world.hpp"
#include "engine_nccl/published_calls.hpp"

namespace dsc {

// The ranks of one engine, their device and NCCL's communicator. The engine owns it and does not change it,
// so any thread may read it.
struct NcclGroup {
  DeviceWorld world;
  std::shared_ptr<GroupEngine> host;               // has the same ranks
  std::shared_ptr<NcclCommunicator> communicator;  // null in a group of one rank
  std::shared_ptr<PublishedCalls> published;       // null in a group of one rank
  NcclSettings settings;
  int stream_priority = 0;

  const Device& device() const noexcept { return *world.nccl.device; }
  Group& local() const noexcept { return *host->state.local().group; }
  bool on_one_host() const noexcept { return local().size() == host->size(); }
  uint64_t latest_call() const noexcept { return published ? published->latest() : 0; }

  // Throws BACKEND unless the result is success.
  void check(NcclResult result, const char* function) const {
    if (communicator) return communicator->check(result, function);
    if (result != NcclResult::success)
      fail(DSC_ERR_BACKEND, "%s failed: %s", function,
           world.nccl.library->functions.get_error_string(result));
  }

  // Returns a failure of the group, caused by the given operation.
  Failure failure(dsc_result_t code, OpKind kind, uint64_t sequence, std::string_view what) const noexcept {
    Failure cause;
    cause.code = code;
    cause.set_group(host->id(), host->name());
    cause.revoked = true;
    cause.text = what;
    host->state.name_operation(cause, op_kind_name(kind), sequence);
    return cause;
  }
};

// What the parts may call on the engine that owns them. Any thread may call these functions.
class NcclOwner {
 public:
  virtual void give_up() noexcept = 0;
  // While the result exists, the engine and all its parts exist. Returns null while the engine is being
  // destroyed.
  virtual std::shared_ptr<void> keep_alive() noexcept = 0;

 protected:
  ~NcclOwner() = default;
};

}  // namespace dsc
