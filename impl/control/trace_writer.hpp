// Trace files that nobody waits for: after a failure, and when a signal handler asks. The dispatch thread
// writes them.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "dsc/types.h"

namespace dsc {

class Group;
class World;

class TraceWriter {
 public:
  // Made at the first call and kept until the process is gone.
  static TraceWriter& get();

  // A world with a folder for traces; it withdraws when it goes. Throws without memory or threads.
  void enroll(const std::shared_ptr<World>& world);
  static void withdraw() noexcept { enrolled_.fetch_sub(1); }

  // Writes this world's trace soon; world and groups live until then.
  void post(std::shared_ptr<World> world, std::string reason);

  // Writes the traces of all enrolled worlds soon. Async-signal-safe. STATE when there is none, FORKED in a
  // child.
  static dsc_result_t request() noexcept;

  // Waits until what is due is written, for a second at most.
  static void drain_at_exit();

 private:
  struct Job {
    std::shared_ptr<World> world;
    std::vector<std::shared_ptr<Group>> groups;
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
  std::vector<std::weak_ptr<World>> worlds_ DSC_GUARDED_BY(mutex_);
  std::vector<Job> jobs_ DSC_GUARDED_BY(mutex_);
  bool writing_ DSC_GUARDED_BY(mutex_) = false;
};

}  // namespace dsc
