#include "engine_nccl/nccl_ending.hpp"

#include <thread>

#include "base/log.hpp"
#include "base/wait.hpp"

namespace dsc {
namespace {

constexpr int64_t kHungNs = 30 * kNsPerSecond;
constexpr int kAdoptedMs = 2000;  // time for threads that are about to detach the program's communicator

std::atomic<bool> abort_has_hung{false};

}  // namespace

void NcclEnding::expect_usable() {
  if (abort_has_hung.load())
    fail(DSC_ERR_BACKEND_STUCK,
         "an earlier ncclCommAbort did not return: this process can no longer use the GPU and must exit");
}

void NcclEnding::await_all(Deadline deadline) noexcept {
  while (under_way_.load() > 0 && !deadline.passed()) sleep_until(Deadline::after_ms(1));
}

void NcclEnding::await_adopted() const noexcept {
  const auto& communicator = group_.communicator;
  const Deadline deadline = Deadline::after_ms(kAdoptedMs);
  while (communicator && communicator->is_adopted() && !communicator->ended() && !deadline.passed())
    sleep_until(Deadline::after_ms(1));
}

NcclWait NcclEnding::wait_limits(int timeout_ms) const {
  return {Deadline::after_ms(timeout_ms > 0 ? timeout_ms : group_.host->timeout_ms()), [this] {
            if (!group_.host->revoked() && !begun()) return;
            Failure cause = group_.host->failure();
            if (cause.code == DSC_OK) cause.code = DSC_ERR_REVOKED;
            throw Error(cause);
          }};
}

bool NcclEnding::begin() noexcept {
  State expected = State::kActive;
  return !finalized_.load() && state_.compare_exchange_strong(expected, State::kEnding);
}

void NcclEnding::set_ended() noexcept {
  State expected = State::kEnding;
  state_.compare_exchange_strong(expected, State::kEnded);
}

// Ends all communicators at the same time, because the abort of one communicator may wait for kernels that
// end only when another one is aborted.
void NcclEnding::end(const std::vector<std::shared_ptr<NcclCommunicator>>& all) {
  std::vector<std::thread> threads;
  threads.reserve(all.size());  // otherwise a thread might start but not be stored, which ends the process
  for (const auto& communicator : all)
    if (!call_out([&] {
          threads.push_back(start_thread("dsc-nccl-end", [this, communicator] { end_one(*communicator); }));
        }))
      end_one(*communicator);
  for (std::thread& thread : threads) thread.join();
}

// If the group has not failed, lets running operations complete, because other ranks need this rank's part in
// them.
void NcclEnding::end_one(NcclCommunicator& communicator) noexcept {
  const GroupEngine& host = *group_.host;
  const NcclWait limits{Deadline::after_ms(host.timeout_ms()), [&host] {
                          if (host.revoked()) fail(DSC_ERR_REVOKED, "the communicator has failed");
                        }};
  bool left = false;
  if (!host.revoked()) run_until(limits.deadline.ns, [&] { left = communicator.leave(limits); });
  if (left) return;
  aborted_.store(true);
  run_until(now_ns(), [&] { communicator.abort(); });
}

// Runs `body`, which should return by `due_ns`. If it has still not returned some time later, DeviceWatch
// treats the device as stuck.
template <typename Body>
void NcclEnding::run_until(int64_t due_ns, const Body& body) noexcept {
  std::multiset<int64_t>::iterator due;
  const bool noted = call_out([&] {
    const MutexLock lock(mutex_);
    due = due_ns_.insert(due_ns);
  });
  body();
  if (!noted) return;
  const MutexLock lock(mutex_);
  due_ns_.erase(due);
}

void NcclEnding::check_hung(int64_t now) noexcept {
  {
    const MutexLock lock(mutex_);
    if (due_ns_.empty() || now - *due_ns_.begin() < kHungNs) return;
  }
  State expected = State::kEnding;
  if (has_graphs_.load()) {  // the kernels have ended, but NCCL waits until the graphs are destroyed
    if (!state_.compare_exchange_strong(expected, State::kEnded)) return;
    return log(DSC_LOG_LEVEL_WARN,
               "group \"%s\": NCCL keeps its communicator until the graphs that use it are destroyed",
               group_.host->name().c_str());
  }
  if (!state_.compare_exchange_strong(expected, State::kStuck)) return;
  abort_has_hung.store(true);
  log(DSC_LOG_LEVEL_ERROR,
      "group \"%s\": NCCL did not end its communicator within 30 s; this process can no longer use the GPU "
      "and must exit",
      group_.host->name().c_str());
}

}  // namespace dsc
