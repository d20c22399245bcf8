#include "sharded/flat_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "comm/memory.hpp"

namespace dsc {
namespace {

constexpr size_t kLeastBytes = 128;  // also memory for no elements has an address

}  // namespace

FlatMemory FlatMemory::shared(Comm& group, size_t bytes) {
  auto* const data = static_cast<std::byte*>(group.allocate_memory(std::max(bytes, kLeastBytes)));
  return {data, bytes, true};
}

FlatMemory FlatMemory::reserved(size_t bytes) {
  const size_t wanted = std::max(bytes, kLeastBytes);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const data = mmap(nullptr, wanted, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (data == MAP_FAILED) fail(DSC_ERR_NOMEM, "no addresses for %zu bytes of flat buffers", wanted);
  return {static_cast<std::byte*>(data), wanted, false};
}

FlatMemory::FlatMemory(FlatMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), is_shared_(other.is_shared_) {}

FlatMemory::~FlatMemory() {
  if (!data_) return;
  if (is_shared_) {
    release_memory(data_);
  } else {
    munmap(data_, bytes_);
  }
}

void FlatMemory::clear(size_t offset, size_t bytes) const noexcept {
  if (bytes == 0) return;
  // Locked pages cannot be given back; they are zeroed instead.
  if (is_shared_ || madvise(data_ + offset, bytes, MADV_DONTNEED) != 0) std::memset(data_ + offset, 0, bytes);
}

void FlatMemory::close(size_t offset, size_t bytes) const {
  if (bytes == 0) return;
  clear(offset, bytes);
  if (mprotect(data_ + offset, bytes, PROT_NONE) != 0) fail_errno(errno, "mprotect of %zu bytes", bytes);
}

void FlatMemory::open(size_t offset, size_t bytes) const {
  if (bytes == 0) return;
  if (mprotect(data_ + offset, bytes, PROT_READ | PROT_WRITE) == 0) return;
  if (errno == ENOMEM) fail(DSC_ERR_NOMEM, "no memory for %zu bytes of parameters", bytes);
  fail_errno(errno, "mprotect of %zu bytes", bytes);
}

size_t FlatMemory::alignment(bool is_shared) noexcept {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return is_shared ? 1 : page;
}

}  // namespace dsc
