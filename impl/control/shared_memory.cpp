#include "control/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/mutex.hpp"
#include "base/pages.hpp"
#include "base/thread.hpp"

namespace dsc {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

using SegmentId = std::pair<dev_t, ino_t>;

// All mappings by segment, so that the ranks of a process share one mapping per segment.
struct MappingCache {
  Mutex mutex;
  std::map<SegmentId, std::weak_ptr<Mapping>> mappings DSC_GUARDED_BY(mutex);
};

// The cache is never destroyed, because mappings may outlive static objects.
MappingCache& cache() {
  static MappingCache* const instance = new MappingCache;
  return *instance;
}

// Returns the first number that matches `format` in a small text file, or `missing`.
size_t read_number(const char* path, const char* format, size_t missing) {
  std::FILE* file = std::fopen(path, "re");
  if (!file) return missing;
  char line[128];
  size_t number = 0;
  bool found = false;
  while (!found && std::fgets(line, sizeof line, file)) found = std::sscanf(line, format, &number) == 1;
  std::fclose(file);
  return found ? number : missing;
}

// Returns how many bytes can be reserved without exhausting the memory of the machine or the limit of this
// process's control group.
size_t available_bytes() {
  const size_t machine = read_number("/proc/meminfo", "MemAvailable: %zu", SIZE_MAX >> 10) << 10;
  const size_t limit = read_number("/sys/fs/cgroup/memory.max", "%zu", SIZE_MAX);
  const size_t used = read_number("/sys/fs/cgroup/memory.current", "%zu", 0);
  return std::min(machine, limit > used ? limit - used : 0);
}

// This check is needed because reserving too much memory does not fail. Instead the kernel would kill
// processes to free memory.
void check_available(size_t bytes, size_t copies) {
  const size_t available = available_bytes();
  size_t needed = 0;
  if (__builtin_mul_overflow(bytes, copies, &needed) || needed > available - available / 32)
    fail(DSC_ERR_NOSPACE, "%zu x %zu bytes of shared memory are needed, %zu are available", copies, bytes,
         available);
}

struct stat check_segment(int fd, size_t bytes) {
  struct stat status {};
  if (fstat(fd, &status) != 0) fail_errno(errno, "fstat of a shared segment");
  if (static_cast<size_t>(status.st_size) < bytes)
    fail(DSC_ERR_PROTOCOL, "a shared segment has %zu bytes, expected %zu",
         static_cast<size_t>(status.st_size), bytes);
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals != kSeals) fail(DSC_ERR_PROTOCOL, "a shared segment has seals %d, expected %d", seals, kSeals);
  return status;
}

std::byte* map_pages(int fd, size_t bytes, OnFork on_fork) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    if (errno == ENOMEM) fail(DSC_ERR_NOMEM, "no free address range for %zu bytes of shared memory", bytes);
    fail_errno(errno, "mmap of %zu bytes of shared memory", bytes);
  }
  if (on_fork == OnFork::kGone) madvise(data, bytes, MADV_DONTFORK);
  return static_cast<std::byte*>(data);
}

// Signals are blocked because the kernel restarts the reservation at every signal. With a timer of a short
// period it would restart endlessly.
int reserve(int fd, size_t bytes) noexcept {
  const SignalsBlocked uninterrupted;
  return posix_fallocate(fd, 0, static_cast<off_t>(bytes));
}

}  // namespace

Mapping::Mapping(int fd, size_t bytes, OnFork on_fork)
    : data_(map_pages(fd, bytes, on_fork)), bytes_(bytes) {}

Mapping::~Mapping() { munmap(data_, bytes_); }

// Moves the copy over the old pages in one step, so that the range is mapped at all times.
void make_private(std::byte* first, size_t bytes) {
  const size_t page = page_bytes();
  const size_t before = reinterpret_cast<uintptr_t>(first) % page;
  std::byte* const start = first - before;
  const size_t length = (before + bytes + page - 1) / page * page;
  void* copy = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED)
    fail(DSC_ERR_NOMEM, "no memory to detach %zu bytes from a peer that may still write them", length);
  std::memcpy(copy, start, length);
  if (mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, start) == MAP_FAILED) {
    const int error = errno;
    munmap(copy, length);
    if (error == ENOMEM)
      fail(DSC_ERR_NOMEM, "the process may not map %zu more bytes (limits: vm.max_map_count, RLIMIT_AS)",
           length);
    fail_errno(error, "mremap over shared memory");
  }
}

UniqueFd create_segment(const char* name, size_t bytes, size_t copies, size_t appended) {
  check_available(bytes, copies);
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail_errno(errno, "memfd_create");
  if (fchmod(fd.get(), 0600) != 0) fail_errno(errno, "fchmod of a shared segment");
  const int error = reserve(fd.get(), bytes + appended);
  if (error == ENOSPC || error == ENOMEM || error == EFBIG)
    fail(DSC_ERR_NOSPACE, "%zu bytes of shared memory are needed, %zu are available%s", bytes,
         available_bytes(), error == EFBIG ? ", and the process's file size limit is lower" : "");
  if (error != 0) fail_errno(error, "fallocate of %zu bytes of shared memory", bytes);
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) fail_errno(errno, "sealing a shared segment");
  return fd;
}

std::shared_ptr<Mapping> map_segment(int fd, size_t bytes, OnFork on_fork) {
  const struct stat status = check_segment(fd, bytes);
  MappingCache& known = cache();
  MutexLock lock(known.mutex);
  std::erase_if(known.mappings, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Mapping>& entry = known.mappings[{status.st_dev, status.st_ino}];
  std::shared_ptr<Mapping> mapping = entry.lock();
  if (!mapping) {
    mapping = std::make_shared<Mapping>(fd, bytes, on_fork);
    entry = mapping;
  }
  return mapping;
}

}  // namespace dsc
