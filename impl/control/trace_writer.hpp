// Writes trace files in the background, after a failure or at the request of a signal handler. The dispatch
// thread does the work, so that no caller waits for it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "control/group_record.hpp"
#include "dsc/types.h"

namespace dsc {

class HostGroup;

// There is one per process. Any thread may call it.
class TraceWriter {
 public:
  // Creates the object at the first call. It is kept until the process ends.
  static TraceWriter& get();

  // Adds a host group that has a folder for traces. The host group calls withdraw() when it is destroyed.
  // Throws if memory or threads run out.
  void enroll(const std::shared_ptr<HostGroup>& host);
  static void withdraw() noexcept { enrolled_.fetch_sub(1); }

  // Requests that the trace of this host group is written soon. The host group and its records are kept until
  // then.
  void post(std::shared_ptr<HostGroup> host, std::string reason);

  // Requests the traces of all enrolled host groups. Async-signal-safe. Returns STATE if there are none, and
  // FORKED in a forked child.
  static dsc_result_t request() noexcept;

  // Waits until requested traces are written, but at most ten seconds, because a slow file system may block
  // for some time.
  static void drain_at_exit();

 private:
  // A trace to be written. It keeps the host group alive.
  struct Job {
    std::shared_ptr<HostGroup> host;
    std::vector<GroupRecord> groups;
    std::string reason;
  };

  struct Writing;

  void write_all();
  void add_requested();
  std::vector<Job> take_jobs();
  void set_writing(bool writing);
  void drain();
  static void write(const Job& job);

  static std::atomic<int> enrolled_;
  static std::atomic<bool> requested_;

  Mutex mutex_;
  Condition changed_;
  std::vector<std::weak_ptr<HostGroup>> hosts_ DSC_GUARDED_BY(mutex_);
  std::vector<Job> jobs_ DSC_GUARDED_BY(mutex_);
  bool writing_ DSC_GUARDED_BY(mutex_) = false;
};

}  // namespace dsc
