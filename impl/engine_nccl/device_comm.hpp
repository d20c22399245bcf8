// A communicator that is bound to a device. Calls whose buffers are in host memory go to the host's
// communicator, calls whose buffers are on the device to NCCL.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "engine_nccl/device_engine.hpp"

namespace dsc {

class DeviceComm final : public Comm {
 public:
  // Collective among the ranks of `host`. Throws if the device's side cannot be made.
  static std::shared_ptr<Comm> create(const DeviceWorld& world, std::shared_ptr<Comm> host,
                                      Deadline deadline);
  ~DeviceComm() override;

  int rank() const noexcept override { return host_->rank(); }
  int size() const noexcept override { return host_->size(); }
  uint64_t id() const noexcept override { return host_->id(); }
  int32_t backend() const noexcept override { return DSC_BACKEND_DEVICE; }
  int32_t device() const noexcept override { return engine_->device().number(); }
  const DeviceContext* device_context() const noexcept override { return &engine_->world().gpu; }
  std::optional<std::string> unsupported_reason(const Call& call) const override {
    return dsc::unsupported_reason(engine_->world().nccl, call);
  }
  LocalMembers local_members() const override { return host_->local_members(); }
  const std::string& name() const noexcept override { return host_->name(); }
  int global_rank(int group_rank) const override { return host_->global_rank(group_rank); }
  int group_rank(int global_rank) const noexcept override { return host_->group_rank(global_rank); }

  void run(const Call& call) override;
  std::shared_ptr<Work> start(const Call& call) override;
  void run_group(const std::vector<Call>& calls) override;
  std::shared_ptr<Work> start_group(const std::vector<Call>& calls) override;

  std::shared_ptr<Comm> split(int32_t color, int32_t key, const GroupOptions& options) override;
  std::shared_ptr<Comm> create_group(std::span<const int32_t> ranks, const GroupOptions& options) override;
  std::shared_ptr<Comm> adopt_nccl(void* nccl_comm, const GroupOptions& options) override;
  std::shared_ptr<Comm> make_channel(const std::string& name) override;
  int32_t agree_on(int32_t flags) override { return host_->agree_on(flags); }
  std::shared_ptr<Comm> shrink(const GroupOptions& options) override;
  std::vector<int32_t> missing() const override { return host_->missing(); }
  std::shared_ptr<Comm> successor() const noexcept override;
  void* allocate_memory(size_t bytes) override;
  void* allocate_on_device(size_t bytes) override;

  bool progress(Deadline deadline) override { return host_->progress(deadline); }

  int timeout_ms() const noexcept override { return host_->timeout_ms(); }
  void set_timeout_ms(int timeout) noexcept override { host_->set_timeout_ms(timeout); }
  void revoke(const Failure& cause) noexcept override;
  void abort() noexcept override;
  void leave() noexcept override;
  void leave_if_idle() noexcept override;
  bool finalized() const noexcept override { return host_->finalized(); }
  void finalize() override;
  void end_world() noexcept override;
  Failure failure() const override { return engine_->failure(); }
  bool revoked() const noexcept override { return host_->revoked(); }
  bool is_over() const noexcept override { return host_->is_over(); }
  std::vector<OpStats> stats() const override;
  std::string trace(const char* reason) const override { return host_->trace(reason); }
  std::string trace_path() const override { return host_->trace_path(); }
  std::string tuning() const override { return host_->tuning(); }
  const WorldInfo& world_info() const noexcept override { return host_->world_info(); }

 private:
  DeviceComm(std::shared_ptr<Comm> host, std::shared_ptr<DeviceEngine> engine);
  static std::shared_ptr<Comm> finish(const DeviceWorld& world, std::shared_ptr<Comm> host,
                                      std::shared_ptr<NcclCommunicator> communicator,
                                      const GroupOptions& options, Deadline deadline);
  std::shared_ptr<Comm> with_device(const std::function<std::shared_ptr<Comm>()>& make, int32_t color,
                                    const GroupOptions& options);
  std::shared_ptr<NcclCommunicator> split_device(const Comm* child, int32_t color,
                                                 const GroupOptions& options);
  void note(OpKind kind);
  struct Sorted;
  Sorted sort(const std::vector<Call>& calls) const;
  void start_whole(const std::vector<Call>& calls, const std::function<void()>& start);

  const std::shared_ptr<Comm> host_;
  const std::shared_ptr<DeviceEngine> engine_;
  mutable Mutex mutex_;
  std::weak_ptr<Comm> successor_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
