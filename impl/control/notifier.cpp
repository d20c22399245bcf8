#include "control/notifier.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace dsc {
namespace {

constexpr int kSpins = 400;

}  // namespace

void Notifier::wake() noexcept {
  word.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void NotifierWait::sleep(int64_t max_ns) noexcept {
  const timespec limit{max_ns / kNsPerSecond, max_ns % kNsPerSecond};
  syscall(SYS_futex, &notifier_.word, FUTEX_WAIT, seen_, &limit, nullptr, 0);
}

void Backoff::yield() noexcept { sched_yield(); }

int spin_limit(bool oversubscribed) noexcept { return oversubscribed ? 0 : kSpins; }

}  // namespace dsc
