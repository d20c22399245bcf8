#include "single_step.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "crew.hpp"

namespace fault {
namespace {

volatile int64_t steps = 0;
volatile int64_t limit = 0;
volatile int at_limit = 0;

// After the signal was sent, the process runs without traps. With a trap for every instruction it might never
// finish a wait on a busy machine.
void on_trap(int, siginfo_t*, void* context) {
  steps = steps + 1;
  if (steps != limit) return;
  kill(getpid(), at_limit);
#if defined(__x86_64__)
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~greg_t{0x100};
#else
  static_cast<void>(context);
#endif
}

// The assembly code skips the 128 bytes below the stack pointer (the red zone), which a leaf function may
// use.
void set_trap_flag(bool on) {
#if defined(__x86_64__)
  if (on)
    asm volatile("lea -128(%%rsp), %%rsp\n pushfq\n orq $0x100, (%%rsp)\n popfq\n lea 128(%%rsp), %%rsp" ::
                     : "memory", "cc");
  else
    asm volatile("lea -128(%%rsp), %%rsp\n pushfq\n andq $~0x100, (%%rsp)\n popfq\n lea 128(%%rsp), %%rsp" ::
                     : "memory", "cc");
#else
  static_cast<void>(on);
#endif
}

}  // namespace

bool can_single_step() {
#if defined(__x86_64__)
  return slowdown() == 1;
#else
  return false;
#endif
}

void arm(int64_t instructions, int signal) {
  if (!can_single_step()) return;
  struct sigaction action {};
  action.sa_sigaction = on_trap;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, nullptr);
  steps = 0;
  limit = instructions;
  at_limit = signal;
  set_trap_flag(true);
}

int64_t disarm() {
  if (can_single_step()) set_trap_flag(false);
  return steps;
}

}  // namespace fault

// Replaces the function of the C library, also for the library under test: a trap while SIGTRAP is blocked
// would end the process.
extern "C" int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  sigset_t without_trap;
  if (set) {
    without_trap = *set;
    if (how != SIG_UNBLOCK) sigdelset(&without_trap, SIGTRAP);
  }
  return syscall(SYS_rt_sigprocmask, how, set ? &without_trap : nullptr, old, _NSIG / 8) == 0 ? 0 : -1;
}
