// Several operations that count as one.
#pragma once

#include <memory>
#include <vector>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "comm/comm.hpp"
#include "comm/work.hpp"

namespace dsc {

// Its descriptor becomes readable when so many works have completed.
class Countdown {
 public:
  explicit Countdown(size_t works);
  void complete_one() noexcept;
  int event_fd() noexcept;
  void close() noexcept;  // works that still run keep the rest

 private:
  std::atomic<size_t> left_;
  Mutex mutex_;
  UniqueFd fd_ DSC_GUARDED_BY(mutex_);
};

class WorkSet final : public Work {
 public:
  // Room for so many works.
  explicit WorkSet(size_t works) { works_.reserve(works); }
  // Before the set is anybody else's.
  void add(std::shared_ptr<Work> work) { works_.push_back(std::move(work)); }

  bool done() const noexcept override;
  bool test() override;
  bool wait(Deadline deadline) override;
  bool wait_on(void* stream, Deadline deadline) override;
  // The first one's that failed, in the order of the calls.
  Failure failure() const override;
  int event_fd() override;
  void close_event_fd() noexcept override;
  void notify(std::shared_ptr<Countdown> countdown) override;

 private:
  std::vector<std::shared_ptr<Work>> works_;
  Mutex mutex_;
  std::shared_ptr<Countdown> countdown_ DSC_GUARDED_BY(mutex_);
};

// Starts all calls. If one cannot be started, the communicator is revoked, since other ranks wait for it, and
// those before have ended.
std::shared_ptr<Work> start_all(Comm& comm, const std::vector<Call>& calls);

// Runs all calls to their end; throws the first failure.
void run_all(Comm& comm, const std::vector<Call>& calls);

}  // namespace dsc
