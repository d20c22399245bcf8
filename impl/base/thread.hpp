// Threads of the library have a name and block all signals, which belong to the host program.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace dsc {

// While it exists, signals are blocked in the calling thread, and threads that it starts inherit that.
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

// Starts a thread. `name` must be a string that is never freed. The thread sets its own name, so that no file
// in /proc is opened: if such a file was opened, the kernel spins in waitpid() until the entry is dropped
// when the last thread of the process has just ended.
template <typename Body>
std::thread start_thread(const char* name, Body body) {
  const SignalsBlocked inherited;
  return std::thread([name, body = std::move(body)]() mutable {
    pthread_setname_np(pthread_self(), name);
    body();
  });
}

}  // namespace dsc
