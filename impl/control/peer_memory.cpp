#include "control/peer_memory.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.hpp"
#include "control/tuning.hpp"

namespace dsc {
namespace {

// Returns the number that the process of a pidfd has in the PID namespace of this process. Returns 0 if the
// process has ended or cannot be seen from here.
int32_t pid_of(int pidfd) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
  std::FILE* const file = std::fopen(path, "re");
  if (!file) return 0;
  int32_t pid = 0;
  char line[128];
  while (std::fgets(line, sizeof line, file))
    if (std::sscanf(line, "Pid: %d", &pid) == 1) break;
  std::fclose(file);
  return std::max(pid, 0);
}

iovec piece(uint64_t address, size_t bytes) noexcept { return {reinterpret_cast<void*>(address), bytes}; }

std::string why_refused(int error) {
  if (error == EPERM)
    return "the kernel does not permit it: the users differ, kernel.yama.ptrace_scope is not 0, or a filter "
           "of system calls refuses it";
  if (error == ENOSYS) return "the kernel has no process_vm_readv, or a filter of system calls refuses it";
  return std::string("process_vm_readv fails: ") + std::strerror(error);
}

}  // namespace

void PeerRead::add(void* to, uint64_t from, size_t bytes) noexcept {
  to_[parts_] = {to, bytes};
  from_[parts_++] = piece(from, bytes);
  bytes_ += bytes;
}

PeerMemory::PeerMemory(int pidfd, int32_t pid, int32_t thread, const MemoryProbe& probe)
    : thread_(thread), probe_(probe) {
  if (pid_of(pidfd) != pid)
    why_not_ = "the process has ended or is in another PID namespace, or /proc is not mounted";
  else
    try_to_read();
}

void PeerMemory::try_to_read() {
  PeerRead nothing;
  uint64_t found = 0;
  if (read_once(nothing, found) < 0)
    why_not_ = why_refused(errno);
  else if (found != probe_.value)
    why_not_ = "another process has the number of this one";
  else
    why_not_.clear();
}

int64_t PeerMemory::read_once(PeerRead& parts, uint64_t& found) const noexcept {
  parts.to_[0] = {&found, sizeof found};
  parts.from_[0] = piece(probe_.address, sizeof found);
  return ::process_vm_readv(thread_, parts.to_.data(), parts.parts_, parts.from_.data(), parts.parts_, 0);
}

// Each call also reads the probe. It shows that the data came from the right process: the kernel may have
// given the number of an ended process to another one, or the process may have started another program.
bool PeerMemory::read(PeerRead& parts) const {
  uint64_t found = 0;
  const int64_t bytes = read_once(parts, found);
  if (bytes < 0 && errno != ESRCH && errno != EFAULT)
    fail_errno(errno,
               "reading %zu bytes of the memory of thread %d, which was possible at start-up "
               "(DSC_TUNING=single_copy_min_bytes=%zu forbids it)",
               parts.bytes_, thread_, kNoLimit);
  if (bytes < static_cast<int64_t>(sizeof found) || found != probe_.value) return false;
  const size_t moved = static_cast<size_t>(bytes) - sizeof found;
  if (moved < parts.bytes_)
    fail_errno(
        EFAULT,
        "copying %zu bytes, at first from %p of thread %d to %p of this process, ended after %zu bytes (both "
        "buffers must stay mapped until the operation is complete)",
        parts.bytes_, parts.from_[1].iov_base, thread_, parts.to_[1].iov_base, moved);
  parts.clear();
  return true;
}

bool others_can_read(const void* buffer, size_t bytes) noexcept {
  if (::prctl(PR_GET_DUMPABLE) != 1) return false;
  const auto first = reinterpret_cast<uint64_t>(buffer);
  std::array<std::byte, 2> ends;
  const iovec to{ends.data(), ends.size()};
  const std::array from{piece(first, 1), piece(first + bytes - 1, 1)};
  return ::process_vm_readv(::gettid(), &to, 1, from.data(), from.size(), 0) == std::ssize(ends);
}

}  // namespace dsc
