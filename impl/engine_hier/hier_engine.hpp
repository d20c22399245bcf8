// The engine for several hosts. It uses the host engine among the ranks of each host and a transport group
// between the leaders. Every operation is compared on all ranks before its result is used.
//
// HierQueues keeps operations in order, and CallComparison compares them. HierTransfer and pass_message()
// move their data over the connections of HierLinks. HierStatus answers other hosts that ask what this rank
// did last.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "comm/engine.hpp"
#include "engine_hier/arrival_mark.hpp"
#include "engine_hier/hier_context.hpp"
#include "engine_hier/hier_layout.hpp"
#include "engine_hier/hier_links.hpp"
#include "engine_hier/hier_queues.hpp"
#include "engine_hier/hier_status.hpp"
#include "engine_hier/hier_world.hpp"
#include "engine_host/host_engine.hpp"

namespace dsc {

class HierEngine final : public GroupEngine {
 public:
  // All ranks of the group call this. `local` holds the group's ranks on this host, in the same order.
  static std::shared_ptr<HierEngine> create(std::shared_ptr<HierWorld> world,
                                            std::shared_ptr<HostEngine> local, HierLayout layout, uint64_t id,
                                            std::string name, int timeout_ms, Deadline deadline);
  ~HierEngine() override;

  int32_t backend() const noexcept override { return DSC_BACKEND_INTER_HOST; }
  bool checks_nonfinite() const noexcept override { return false; }

  std::optional<std::string> unsupported_reason(const Call& call) const override;
  void run(const Call& call) override;
  std::shared_ptr<Work> start(const Call& call) override;
  void* allocate(size_t bytes) override;
  void register_memory(void* memory, size_t bytes) override;
  bool has_running() noexcept override;
  void finalize() override;

  // Drives the operations of all communicators of the world.
  bool progress(Deadline deadline) override { return local_->progress(deadline); }
  void restart_sequence() noexcept override { queues_.restart_sequence(); }
  void revoke(const Failure& cause) noexcept override;
  bool revoked() const noexcept override { return revoked_.load() || local_->revoked(); }
  Failure failure() const override;
  void learn_of(const Failure& cause) noexcept override;
  void leave() noexcept override;
  void leave_if_idle() noexcept override;
  std::shared_ptr<GroupEngine> make_group(const NewGroup& wanted) override;
  int32_t agree_on(int32_t flags) override;
  std::shared_ptr<GroupEngine> shrink(const GroupOptions& options) override;
  void on_status_query(const QueryHandler& handler) override { status_.set_handler(handler); }
  std::vector<Answer> query_hosts(uint64_t sequence, const std::string& question) override {
    return status_.query_hosts(sequence, question);
  }
  std::vector<Answer> query_rank(int32_t rank, const std::string& question) override {
    return status_.query_rank(rank, question);
  }

  const HierStatus& status() const noexcept { return status_; }

 private:
  HierEngine(std::shared_ptr<HierWorld> world, std::shared_ptr<HostEngine> local, HierLayout layout,
             uint64_t id, std::string name, int timeout_ms);
  void connect(Deadline deadline);

  // --- Operations.
  // Sizes of this rank's buffers in bytes; 0 for a buffer that the call does not use.
  struct BufferBytes {
    size_t send, recv;
  };
  BufferBytes bytes_of(const Call& call) const noexcept;
  std::optional<Failure> refusal() const noexcept;
  std::optional<Record> open_record(const Call& call, uint64_t sequence) noexcept;
  std::optional<Failure> execute(const Call& call, uint64_t sequence, std::optional<Record>& record) noexcept;
  void perform(const Call& call, uint64_t sequence, ArrivalMark& arrival);
  // Runs a call whose blocks are contiguous in memory.
  void perform_packed(const Call& call, uint64_t sequence, ArrivalMark& arrival);
  void run_message(const Call& call, uint64_t sequence, ArrivalMark& arrival, Deadline deadline);
  void tell_hosts(bool finalizes) noexcept;

  // --- Failures.
  void check_host() const;
  Failure in_group(Failure failure) const noexcept;
  Failure cause_of(const Call& call, uint64_t sequence, const Error& error) const;
  std::optional<Failure> known_group_failure() const noexcept;
  void publish_failure_of_host() noexcept;
  std::vector<RankGone> stalled_here() const;
  void adopt_failure(const Failure& cause) noexcept;
  Failure unresponsive_hosts() const noexcept;
  Failure fail_operation(const Call& call, uint64_t sequence, const Error& error,
                         const ArrivalMark& arrival) noexcept;

  std::shared_ptr<HostEngine> make_local_part(const NewGroup& wanted);

  const std::shared_ptr<HierWorld> world_;
  const std::shared_ptr<HostEngine> local_;
  const HierLayout layout_;
  std::atomic<bool> revoked_{false};
  std::atomic<bool> announced_{false};  // true once this rank has announced that it leaves
  std::atomic<bool> leaving_{false};    // true while leave_if_idle() checks whether operations run
  mutable Mutex mutex_;
  Failure cause_ DSC_GUARDED_BY(mutex_);
  HierStatus status_;
  HierLinks links_;
  HierContext context_;
  HierQueues queues_;  // last member, because its threads use the others
};

}  // namespace dsc
