#include "control/bell.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace dsc {
namespace {

constexpr int kSpins = 400;

}  // namespace

void Bell::wake() noexcept {
  word.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void BellSleep::sleep(int64_t max_ns) noexcept {
  const timespec limit{max_ns / kNsPerSecond, max_ns % kNsPerSecond};
  syscall(SYS_futex, &bell_.word, FUTEX_WAIT, seen_, &limit, nullptr, 0);
}

void Backoff::yield() noexcept { sched_yield(); }

int spin_limit(int ranks_on_host) noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return ranks_on_host <= cores ? kSpins : 0;
}

}  // namespace dsc
