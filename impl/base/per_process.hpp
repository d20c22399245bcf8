// One object per process, created at the first use and never destroyed.
#pragma once

#include <pthread.h>

#include <atomic>

namespace dsc {

// A forked child gets a new object. The threads that serve the parent's object do not exist in the child, and
// the locks in that object may have been held during the fork.
template <typename T>
class PerProcess {
 public:
  // Returns nullptr before the first get().
  static T* find() noexcept { return current.load(); }

  // Throws if memory runs out.
  static T& get() {
    [[maybe_unused]] static const int once = pthread_atfork(nullptr, nullptr, [] { current.store(nullptr); });
    T* found = current.load();
    if (found) return *found;
    T* const made = new T;
    if (current.compare_exchange_strong(found, made)) return *made;
    delete made;
    return *found;
  }

 private:
  static inline std::atomic<T*> current{nullptr};
};

}  // namespace dsc
