// Threads of the library have a name and block all signals, because signals belong to the host program.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace dsc {

// While this object exists, signals are blocked in the calling thread and in threads that it starts.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Starts a thread. `name` must be a string that is never freed. The thread sets its own name, because another
// thread would have to open a file in /proc. If such a file has been opened, the kernel can spin in waitpid()
// after the last thread of the process has ended.
template <typename Body>
std::thread start_thread(const char* name, Body body) {
  const SignalsBlocked inherited;
  return std::thread([name, body = std::move(body)]() mutable {
    pthread_setname_np(pthread_self(), name);
    body();
  });
}

}  // namespace dsc
