// The conformance engine: a small group engine for ranks that are threads of one process. It implements the
// whole engine interface in the simplest way, with one lock and without shared memory. So it shows what an
// engine must do. Tests use it where ranks must meet without a world.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "comm/engine.hpp"
#include "shared_group.hpp"

namespace conformance {

class Engine final : public dsc::GroupEngine {
 public:
  // `host` is the engine of these ranks on their host. It starts and ends together with this engine. It is
  // null without a world.
  Engine(dsc::CommIdentity identity, std::shared_ptr<SharedGroup> group, std::shared_ptr<RankLoad> load,
         std::shared_ptr<dsc::GroupEngine> host, std::shared_ptr<const dsc::WorldInfo> info, int timeout_ms);
  ~Engine() override { leave(); }

  int32_t backend() const noexcept override { return DSC_BACKEND_HOST; }
  bool checks_nonfinite() const noexcept override { return true; }

  void run(const dsc::Call& call) override;
  std::shared_ptr<dsc::Work> start(const dsc::Call& call) override;
  void* allocate(size_t bytes) override;
  bool has_running() noexcept override { return group_->has_running(rank()); }
  void finalize() override;
  bool progress(dsc::Deadline deadline) override;
  void restart_sequence() noexcept override { collectives_ = 0; }

  void revoke(const dsc::Failure& cause) noexcept override;
  bool revoked() const noexcept override { return failure().code != DSC_OK; }
  dsc::Failure failure() const override;
  void leave() noexcept override;
  void leave_if_idle() noexcept override;

  std::shared_ptr<dsc::GroupEngine> make_group(const dsc::NewGroup& wanted) override;
  int32_t agree_on(int32_t flags) override;
  std::shared_ptr<dsc::GroupEngine> shrink(const dsc::GroupOptions& options) override;

  // --- For the group, with the lock of the world held. Returns the number of a call, from 1, or 0 for
  // operations without a number.
  uint64_t next_sequence(const dsc::Call& call);
  RankLoad& load() noexcept { return *load_; }

 private:
  Decision decide(Question question, int32_t flags);

  const std::shared_ptr<SharedGroup> group_;
  const std::shared_ptr<RankLoad> load_;
  const std::shared_ptr<dsc::GroupEngine> host_;
  std::atomic<uint64_t> collectives_{0};
  std::map<std::pair<int32_t, bool>, uint64_t> messages_;  // key: the peer, and whether this rank sends
  std::shared_ptr<std::atomic<int>> shrinks_ = std::make_shared<std::atomic<int>>(0);
};

// Does the same as Engine::progress() for all ranks of this process.
bool progress_all(dsc::Deadline deadline);

// Returns the engines of a world without a host engine, by rank.
std::vector<std::shared_ptr<dsc::GroupEngine>> make_engines(int size, int timeout_ms);

// Returns the communicators of ranks 0 to size - 1 of one group.
std::vector<std::shared_ptr<dsc::Comm>> make_world(int size, int timeout_ms = 20'000);

// Runs body(comm) for every rank of a new world, each in a separate thread.
void on_ranks(int size, const std::function<void(dsc::Comm&)>& body);

// Makes the next `count` operations in the process fail to start, for lack of memory.
void refuse_starts(int count);

// Returns the number of blocks of allocate_memory() that were not released.
int live_blocks();

}  // namespace conformance
