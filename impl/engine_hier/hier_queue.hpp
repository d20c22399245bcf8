// A queue of operations between hosts. These operations block, so they run one after another, on a thread
// that is started with the first asynchronous operation.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/mutex.hpp"
#include "comm/operation_work.hpp"
#include "control/call.hpp"
#include "control/host_group.hpp"
#include "control/recorder.hpp"

namespace dsc {

class HierWork final : public OperationWork {
 public:
  HierWork(const Call& call, uint64_t group, uint64_t sequence)
      : OperationWork(call, group), sequence_(sequence) {}

  uint64_t sequence() const noexcept override { return sequence_; }
  void complete(const std::optional<Failure>& failure) noexcept;

  std::optional<Record> record;  // belongs to the queue

 private:
  void await_end(Deadline deadline) override;

  const uint64_t sequence_;
  Mutex mutex_;
  Condition completed_;
};

class HierQueue {
 public:
  // Enters an operation into the flight recorder and returns its record; nullopt if the operation is refused.
  // Must not throw.
  using Open = std::function<std::optional<Record>(const Call& call, uint64_t sequence)>;
  // Runs one operation to its end and returns its failure, if any. Must not throw.
  using Execute = std::function<std::optional<Failure>(const Call& call, uint64_t sequence,
                                                       std::optional<Record>& record)>;

  // The operations belong to this rank, a member of `host`.
  HierQueue(Open open, Execute execute, HostGroup& host)
      : open_(std::move(open)), execute_(std::move(execute)), host_(host) {}
  // The group must have failed or been left, so that queued operations end soon.
  ~HierQueue();
  HierQueue(const HierQueue&) = delete;
  HierQueue& operator=(const HierQueue&) = delete;

  // Runs an operation on the calling thread, after the queued operations.
  std::optional<Failure> run(const Call& call);
  std::shared_ptr<Work> start(const Call& call, uint64_t group);
  void drain();
  void restart_sequence() noexcept { sequence_.store(0); }
  // A caller that has seen its operation complete finds the queue idle.
  bool busy() const noexcept { return running_.load() > 0; }

 private:
  void work();
  void begin_one() noexcept;
  void end_one();

  const Open open_;
  const Execute execute_;
  HostGroup& host_;
  std::atomic<int> running_{0};        // operations whose end has not been reported yet
  std::atomic<int> pending_{0};        // operations that drain() waits for
  std::atomic<uint64_t> sequence_{0};  // number of the latest operation that was called
  Mutex mutex_;
  Condition changed_;
  std::deque<std::shared_ptr<HierWork>> queue_ DSC_GUARDED_BY(mutex_);
  bool ending_ DSC_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace dsc
