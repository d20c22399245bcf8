#include "kernel_copies.hpp"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>
#include <numeric>

namespace {

constexpr size_t kLargeBytes = size_t{256} << 10;

std::atomic<int32_t> not_counted{0};
std::atomic<std::atomic<int32_t>*> copies{&not_counted};

size_t bytes_of(const iovec* parts, unsigned long count) {
  return std::accumulate(parts, parts + count, size_t{0},
                         [](size_t bytes, const iovec& part) { return bytes + part.iov_len; });
}

}  // namespace

// The library finds this function before that of the C library.
extern "C" ssize_t process_vm_readv(pid_t pid, const iovec* to, unsigned long to_count, const iovec* from,
                                    unsigned long from_count, unsigned long flags) noexcept {
  const int32_t counted = bytes_of(to, to_count) >= kLargeBytes;
  std::atomic<int32_t>& number = *copies.load();
  number.fetch_add(counted);
  const ssize_t read = syscall(SYS_process_vm_readv, pid, to, to_count, from, from_count, flags);
  number.fetch_sub(counted);
  return read;
}

namespace fault {

void count_kernel_copies(std::atomic<int32_t>& number) { copies = &number; }

}  // namespace fault
