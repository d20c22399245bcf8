// The device side of one communicator, composed of the parts in this folder. The host engine decides when the
// group has failed.
#pragma once

#include <memory>
#include <span>

#include "engine_nccl/device_launches.hpp"
#include "engine_nccl/device_monitor.hpp"

namespace dsc {

// Works and the engine's own threads keep it alive; DeviceWatch does not. Comments of DeviceEngine say which
// functions any thread may call.
class NcclEngine final : public DeviceEngine,
                         private NcclOwner,
                         public std::enable_shared_from_this<NcclEngine> {
 public:
  // Collective among the ranks of `host`: makes the engine of the world's device. If one rank fails, all
  // throw.
  static std::shared_ptr<NcclEngine> create(const DeviceWorld& world,
                                            const std::shared_ptr<GroupEngine>& host, Deadline deadline);
  explicit NcclEngine(NcclGroup group);
  NcclEngine(const NcclEngine&) = delete;
  NcclEngine& operator=(const NcclEngine&) = delete;

  std::optional<std::string> unsupported_reason(const Call& call) const override {
    return launches_.unsupported_reason(call);
  }
  const DeviceContext& context() const noexcept override { return group_.world.gpu; }
  bool takes(const Call& call) override;
  void note_host_call(const Call& call) override;
  void run(const Call& call) override { launches_.run(call); }
  std::shared_ptr<Work> start(const Call& call) override { return launches_.start(call); }
  void run_batch(std::span<const Call> calls) override { launches_.run_batch(calls); }
  std::shared_ptr<Work> start_batch(std::span<const Call> calls) override {
    return launches_.start_batch(calls);
  }
  void* allocate(size_t bytes) override;
  Engines make_group(const MakeGroup& make, int32_t color, const GroupOptions& options) override;
  Engines shrink(const GroupOptions& options) override;
  Engines adopt(void* communicator, const GroupOptions& options) override;
  bool has_running() noexcept override;
  // Waits for running operations and ends NCCL's communicators in an orderly way.
  void finalize() override;
  Failure failure() const override { return failures_.failure(); }
  void give_up() noexcept override;
  void await_adopted() const noexcept override { ending_.await_adopted(); }

  // Returns false if the communicator is ending, because NCCL then releases its windows itself.
  bool deregister_window(NcclWindow* window) noexcept;

 private:
  std::shared_ptr<void> keep_alive() noexcept override { return weak_from_this().lock(); }
  int device_of(const Call& call, const void* buffer);

  // Implemented in nccl_groups.cpp.
  static Engines make_part(const DeviceWorld& world, std::shared_ptr<GroupEngine> host,
                           std::shared_ptr<NcclCommunicator> communicator, const GroupOptions& options,
                           Deadline deadline);
  std::shared_ptr<NcclCommunicator> split_communicator(const GroupEngine* child, int32_t color,
                                                       const GroupOptions& options);
  std::shared_ptr<NcclCommunicator> split(int color, int key, const NcclSettings& settings);
  void fail_split(const Error& error) noexcept;

  // Each part refers to parts above it, so the order matters.
  const NcclGroup group_;
  NcclEnding ending_{group_};
  LateCalls late_{group_};
  DeviceFailures failures_{group_, ending_, late_, *this};
  DeviceWorks works_{group_, ending_, late_, failures_, *this};
  DeviceLinks links_{group_, ending_, failures_, *this};
  DeviceLaunches launches_{group_, ending_, late_, failures_, works_, links_, stats};
  DeviceMonitor monitor_{group_, ending_, late_, failures_, works_, links_, *this};
  uint64_t splits_ = 0;
};

}  // namespace dsc
