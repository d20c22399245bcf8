#include "sharded/address_range.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"
#include "base/pages.hpp"

namespace dsc {
namespace {

// These pages take no memory until they are written.
constexpr int kZeroPages = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

AddressRange::AddressRange(size_t bytes, bool faults)
    : bytes_(std::max(bytes, page_bytes())), faults_(faults) {
  void* const data = mmap(nullptr, bytes_, faults ? PROT_NONE : PROT_READ | PROT_WRITE, kZeroPages, -1, 0);
  if (data == MAP_FAILED)
    fail(DSC_ERR_NOMEM, "cannot reserve %zu bytes of address space for the flat buffers", bytes_);
  begin_ = static_cast<std::byte*>(data);
}

AddressRange::~AddressRange() {
  if (begin_) munmap(begin_, bytes_);
}

bool AddressRange::alias(size_t offset, std::byte* shared, size_t bytes) const noexcept {
  return map_again(shared, bytes, begin_ + offset);
}

void AddressRange::provide(size_t offset, size_t bytes) const {
  if (mprotect(begin_ + offset, bytes, PROT_READ | PROT_WRITE) == 0) return;
  if (errno == ENOMEM) fail(DSC_ERR_NOMEM, "no memory for %zu bytes of a unit", bytes);
  fail_errno(errno, "mprotect of %zu bytes", bytes);
}

void AddressRange::clear(size_t offset, size_t bytes) const {
  if (mmap(begin_ + offset, bytes, faults_ ? PROT_NONE : PROT_READ | PROT_WRITE, kZeroPages | MAP_FIXED, -1,
           0) == MAP_FAILED)
    fail_errno(errno, "mmap of %zu bytes of a flat buffer", bytes);
}

}  // namespace dsc
