// One object per process, made when it is first asked for and never destroyed.
#pragma once

#include <pthread.h>

#include <atomic>

namespace dsc {

// A child made by fork() gets an object of its own: the threads that serve the parent's are not in the child,
// and a lock of it may have been held.
template <typename T>
class PerProcess {
 public:
  // nullptr before the first get().
  static T* find() noexcept { return current.load(); }

  // Throws without memory.
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
