#include "meeting.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <stdexcept>
#include <system_error>

namespace bench {
namespace {

constexpr int spins_before_yield = 20000;
constexpr int yields_between_clock_reads = 4096;
constexpr time_t deadline_s = 60;

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

time_t now_s() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec;
}

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

}  // namespace

Meeting::Meeting(const std::string& path, int ranks)
    : ranks_(ranks), spins_(ranks > usable_cores() ? 0 : spins_before_yield) {
  if (ranks < 1 || ranks > max_ranks) throw std::invalid_argument("expected 1 to 64 ranks");
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), path);
  void* memory = MAP_FAILED;
  if (ftruncate(fd, sizeof(Page)) == 0)
    memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (memory == MAP_FAILED) throw std::system_error(error, std::generic_category(), path);
  page_ = static_cast<Page*>(memory);
}

Meeting::~Meeting() { munmap(page_, sizeof(Page)); }

void Meeting::wait() {
  target_ += static_cast<uint32_t>(ranks_);
  page_->arrived.fetch_add(1, std::memory_order_acq_rel);
  const auto all_here = [this] {
    return static_cast<int32_t>(page_->arrived.load(std::memory_order_acquire) - target_) >= 0;
  };
  for (int i = 0; i < spins_; ++i) {
    if (all_here()) return;
    pause_core();
  }
  const time_t give_up = now_s() + deadline_s;
  for (int i = 1; !all_here(); ++i) {
    sched_yield();
    if (i % yields_between_clock_reads == 0 && now_s() > give_up)
      throw std::runtime_error("the other ranks did not reach the start barrier within a minute");
  }
}

}  // namespace bench
