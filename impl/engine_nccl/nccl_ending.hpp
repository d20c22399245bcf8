// The end of the NCCL communicators of one engine, after a failure or because this rank leaves.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <vector>

#include "base/guard.hpp"
#include "base/mutex.hpp"
#include "base/thread.hpp"
#include "engine_nccl/device_watch.hpp"
#include "engine_nccl/nccl_group.hpp"

namespace dsc {

// NcclEngine owns the object. Any thread may call a function unless its comment says otherwise.
class NcclEnding {
 public:
  explicit NcclEnding(const NcclGroup& group) : group_(group) {}

  // Throws BACKEND_STUCK once an abort has hung in this process.
  static void expect_usable();
  // Waits until the threads of run_beside() have ended, for all engines of the process.
  static void await_all(Deadline deadline) noexcept;
  // Waits until a communicator of the program is detached.
  void await_adopted() const noexcept;

  bool begun() const noexcept { return state_.load() != State::kActive; }
  // True if NCCL runs nothing for this engine any more, or if the device is stuck.
  bool over() const noexcept {
    const State state = state_.load();
    return state == State::kEnded || state == State::kStuck;
  }
  bool stuck() const noexcept { return state_.load() == State::kStuck; }
  bool aborted() const noexcept { return aborted_.load(); }  // at least one communicator was aborted
  // The communicators have ended in an orderly way, together with those of the other ranks.
  bool finalized() const noexcept { return finalized_.load(); }
  void set_finalized() noexcept { finalized_.store(true); }
  void note_graph() noexcept { has_graphs_.store(true); }  // operations were captured

  // Returns a wait with the given time-out; 0 means the communicator's time-out. If the communicator ends
  // meanwhile, the wait throws the cause.
  NcclWait wait_limits(int timeout_ms) const;

  // Returns true to the first caller, which must then call end() and set_ended(). Returns false to later
  // callers, and to all callers once the communicators are finalized.
  bool begin() noexcept;
  // Ends all communicators, and returns when this is done.
  void end(const std::vector<std::shared_ptr<NcclCommunicator>>& all);
  void set_ended() noexcept;
  // Treats the device as stuck if ending the communicators takes far too long. Only DeviceWatch calls this.
  void check_hung(int64_t now) noexcept;

  // Runs `body` on a separate thread, because NCCL's abort may hang. If no thread can be made, runs it on
  // this thread.
  template <typename Body>
  static void run_beside(const Body& body) noexcept {
    under_way_.fetch_add(1);
    const auto run = [body] {
      body();
      under_way_.fetch_sub(1);
      DeviceWatch::get().wake();
    };
    if (!call_out([&] { start_thread("dsc-nccl-end", run).detach(); })) run();
  }

 private:
  enum class State { kActive, kEnding, kStuck, kEnded };

  void end_one(NcclCommunicator& communicator) noexcept;
  template <typename Body>
  void run_until(int64_t due_ns, const Body& body) noexcept;

  static inline std::atomic<int> under_way_{0};
  const NcclGroup& group_;
  std::atomic<State> state_{State::kActive};
  std::atomic<bool> aborted_{false};
  std::atomic<bool> finalized_{false};
  std::atomic<bool> has_graphs_{false};
  Mutex mutex_;
  std::multiset<int64_t> due_ns_ DSC_GUARDED_BY(mutex_);  // when calls that end communicators should return
};

}  // namespace dsc
