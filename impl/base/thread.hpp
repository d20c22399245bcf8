// Threads of the library: named, and deaf to signals, which belong to the host program.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace dsc {

// While it lives, signals do not interrupt the calling thread.
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

// The name is kept. The thread gives it to itself, which needs no file of /proc: where one was opened for a
// thread, the kernel spins until it is forgotten when a process is waited for whose last thread has just
// ended.
template <typename Body>
std::thread start_thread(const char* name, Body body) {
  const SignalsBlocked inherited;
  return std::thread([name, body = std::move(body)]() mutable {
    pthread_setname_np(pthread_self(), name);
    body();
  });
}

}  // namespace dsc
