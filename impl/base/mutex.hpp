// std::mutex with clang's thread-safety annotations, which libstdc++ lacks.
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define DSC_TSA(x) __attribute__((x))
#else
#define DSC_TSA(x)
#endif
#define DSC_GUARDED_BY(m) DSC_TSA(guarded_by(m))
#define DSC_REQUIRES(m) DSC_TSA(requires_capability(m))
#define DSC_EXCLUDES(m) DSC_TSA(locks_excluded(m))

namespace dsc {

class DSC_TSA(capability("mutex")) Mutex {
 public:
  void lock() DSC_TSA(acquire_capability()) { mutex_.lock(); }
  void unlock() DSC_TSA(release_capability()) { mutex_.unlock(); }
  bool try_lock() DSC_TSA(try_acquire_capability(true)) { return mutex_.try_lock(); }

 private:
  std::mutex mutex_;
};

class DSC_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) DSC_TSA(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() DSC_TSA(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable for a Mutex that the calling thread holds.
using Condition = std::condition_variable_any;

}  // namespace dsc
