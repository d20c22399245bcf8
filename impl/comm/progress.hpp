// The thread that drives queued operations of all ranks of this process.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "comm/lane.hpp"

namespace dsc {

class ProgressEngine {
 public:
  // Made at the first call, with its thread, and kept until the process is gone.
  static ProgressEngine& get();

  // The lane has something to do. Any thread.
  void add(std::shared_ptr<HostComm> comm, Lane& lane);
  // A lane that was left to a waiting thread may need this one again. Any thread.
  void wake() noexcept;

 private:
  struct Entry {
    std::shared_ptr<HostComm> comm;  // keeps the lane alive
    Lane* lane;
  };

  ProgressEngine();
  void run();
  bool drive_all();
  void collect();

  Mutex mutex_;
  Condition changed_;
  std::vector<Entry> added_ DSC_GUARDED_BY(mutex_);
  bool woken_ DSC_GUARDED_BY(mutex_) = false;
  std::atomic<bool> news_{false};
  std::vector<Entry> active_;  // the thread's own
};

}  // namespace dsc
