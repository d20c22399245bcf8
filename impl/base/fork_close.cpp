#include "base/fork_close.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdint>

#include "base/process_guard.hpp"

namespace dsc {
namespace {

constexpr int kMostDescriptors = 1 << 20;  // default of Linux for the largest possible limit on open files
constexpr int kBits = 64;

// One bit per descriptor. A forked child can read the bits without a lock. Pages of the array that are never
// written take no memory.
std::atomic<uint64_t> marked[kMostDescriptors / kBits];

void close_marked() {
  for (int word = 0; word < kMostDescriptors / kBits; ++word) {
    for (uint64_t bits = marked[word].exchange(0); bits != 0; bits &= bits - 1)
      ::close(word * kBits + std::countr_zero(bits));
  }
}

}  // namespace

void close_in_child(int fd) noexcept {
  if (fd < 0 || fd >= kMostDescriptors) return;
  at_fork_child(close_marked);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  marked[fd / kBits].fetch_or(uint64_t{1} << (fd % kBits));
}

void keep_in_child(int fd) noexcept {
  if (fd >= 0 && fd < kMostDescriptors) marked[fd / kBits].fetch_and(~(uint64_t{1} << (fd % kBits)));
}

}  // namespace dsc
