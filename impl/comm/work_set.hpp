// Several operations behind one handle.
#pragma once

#include <memory>
#include <vector>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "comm/engine.hpp"
#include "comm/work.hpp"

namespace dsc {

// Counts completed operations. The file descriptor becomes readable when the given number of operations has
// ended. Any thread.
class Countdown {
 public:
  explicit Countdown(size_t works);
  void complete_one() noexcept;
  int event_fd() noexcept;
  void close() noexcept;  // closes the file descriptor; running operations keep the object alive

 private:
  std::atomic<size_t> left_;
  Mutex mutex_;
  UniqueFd fd_ DSC_GUARDED_BY(mutex_);
};

class WorkSet final : public Work {
 public:
  // Reserves memory, so that the first `works` calls of add() do not throw.
  explicit WorkSet(size_t works) { works_.reserve(works); }
  // Must not be called after the set was passed to another thread.
  void add(std::shared_ptr<Work> work) { works_.push_back(std::move(work)); }

  bool done() const noexcept override;
  bool test() override;
  bool wait(Deadline deadline) override;
  bool wait_on(void* stream, Deadline deadline) override;
  // Returns the failure of the first work that failed, in the order of the calls.
  Failure failure() const override;
  int event_fd() override;
  void close_event_fd() noexcept override;
  void notify(std::shared_ptr<Countdown> countdown) override;

 private:
  std::vector<std::shared_ptr<Work>> works_;
  Mutex mutex_;
  std::shared_ptr<Countdown> countdown_ DSC_GUARDED_BY(mutex_);
};

// Starts all calls. If one cannot be started, revokes the group, because other ranks wait for that call, and
// throws after all started calls have ended.
std::shared_ptr<Work> start_all(GroupEngine& group, const std::vector<Call>& calls);

// Runs all calls to their end, and throws the first failure.
void run_all(GroupEngine& group, const std::vector<Call>& calls);

}  // namespace dsc
