#include "control/window.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/pages.hpp"
#include "control/shared_memory.hpp"

namespace dsc {
namespace {

std::byte* page_of(std::byte* address) noexcept {
  return address - reinterpret_cast<uintptr_t>(address) % page_bytes();
}

std::byte* page_from(std::byte* address) noexcept { return page_of(address + page_bytes() - 1); }

// One line of /proc/self/maps.
struct MappedRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  char access[5] = "";
  char device[16] = "";
  uint64_t inode = 0;
  char name[64] = "";  // the beginning of the name

  bool parse(const char* line) noexcept {
    return std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*x %15s %" SCNu64 " %63s", &begin, &end, access,
                       device, &inode, name) >= 5;
  }
  // Only the heap and memory that has a name by prctl() are called so, and private.
  bool is_anonymous() const noexcept {
    return name[0] == '\0' || std::strcmp(name, "[heap]") == 0 || std::strncmp(name, "[anon:", 6) == 0;
  }
  bool is_of_file_of(const MappedRange& other) const noexcept {
    return inode == other.inode && std::strcmp(device, other.device) == 0;
  }
};

// Calls see(range, address) for the mapped ranges of some memory, in order; `address` is the first one in the
// range. Returns the first address of the memory that is not mapped, or its end.
template <typename See>
uintptr_t for_each_range(const void* memory, size_t bytes, const See& see) {
  auto next = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t end = next + bytes;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "re"),
                                                             std::fclose);
  if (!maps) fail(DSC_ERR_UNSUPPORTED, "/proc/self/maps cannot be read, which says what memory it is");
  char line[512];
  bool begins = true;  // a name may be longer than one line here
  while (next < end && std::fgets(line, sizeof line, maps.get())) {
    MappedRange range;
    const bool is_range = begins && range.parse(line);
    begins = std::strchr(line, '\n') != nullptr;
    if (!is_range || range.end <= next) continue;
    if (range.begin > next) break;
    see(range, next);
    next = range.end;
  }
  return std::min(next, end);
}

// The address `at` is in the range, and `before` bytes of the memory are before it.
void check_range(const MappedRange& range, uintptr_t at, size_t before) {
  const auto refuse = [&](const char* what, const char* found, const char* expected) {
    fail(DSC_ERR_INVALID_ARG,
         "the memory cannot be registered: %zu bytes after its start, at 0x%" PRIxPTR ", %s%s; expected %s",
         before, at, what, found, expected);
  };
  if (range.access[3] == 's') refuse("is shared memory (MAP_SHARED) ", range.name, "private memory");
  if (!range.is_anonymous()) refuse("is memory of ", range.name, "no mapped file and no stack");
  if (std::strncmp(range.access, "rw-", 3) != 0)
    refuse("is memory with the rights ", range.access, "rights to read and write, and no others");
}

}  // namespace

// The kernel lists the ranges in the order of their addresses.
void Window::check(const void* memory, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t end = for_each_range(
      memory, bytes, [&](const MappedRange& range, uintptr_t at) { check_range(range, at, at - begin); });
  if (end - begin < bytes)
    fail(DSC_ERR_INVALID_ARG, "the memory cannot be registered: only %zu of %zu bytes are mapped",
         static_cast<size_t>(end - begin), bytes);
}

bool Window::is_mapped(bool detached) const {
  const auto length = static_cast<size_t>(shared_end_ - shared_begin_);
  MappedRange segment;
  for_each_range(segment_, 1, [&](const MappedRange& range, uintptr_t) { segment = range; });
  bool all_are_ours = true;
  const uintptr_t end = for_each_range(shared_begin_, length, [&](const MappedRange& range, uintptr_t) {
    const bool is_ours = range.is_of_file_of(segment) || (detached && range.is_anonymous());
    all_are_ours = all_are_ours && is_ours;
  });
  return all_are_ours && end == reinterpret_cast<uintptr_t>(shared_end_);
}

size_t Window::segment_bytes(size_t bytes) noexcept {
  const size_t page = page_bytes();
  return (bytes + page - 1) / page * page + page;
}

Window::Window(void* memory, size_t bytes, std::byte* segment) noexcept
    : begin_(static_cast<std::byte*>(memory)),
      bytes_(bytes),
      first_page_(page_of(begin_)),
      shared_begin_(std::min(page_from(begin_), page_of(begin_ + bytes))),
      shared_end_(page_of(begin_ + bytes)),
      segment_(segment) {}

void Window::open() {
  const auto length = static_cast<size_t>(shared_end_ - shared_begin_);
  if (length == 0) return;
  std::byte* const pages = segment_ + offset_of(shared_begin_);
  std::memcpy(pages, shared_begin_, length);
  if (map_again(pages, length, shared_begin_)) return;
  const int error = errno;
  restore();
  if (error == ENOMEM)
    fail(DSC_ERR_NOMEM, "the process may not map %zu bytes again (limits: vm.max_map_count, RLIMIT_AS)",
         length);
  fail_errno(error, "mremap of %zu bytes of registered memory", length);
}

// After an error the kernel may have unmapped the old pages already. Then maps new ones with the contents,
// which the segment still has. If they are still mapped, nothing was lost.
void Window::restore() {
  const auto length = static_cast<size_t>(shared_end_ - shared_begin_);
  const void* const made = mmap(shared_begin_, length, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (made != MAP_FAILED)
    std::memcpy(shared_begin_, segment_ + offset_of(shared_begin_), length);
  else if (errno != EEXIST)
    fail(DSC_ERR_INTERNAL, "the kernel unmapped %zu bytes at %p, which could not be mapped again", length,
         static_cast<void*>(shared_begin_));
}

// The segment then gives its pages back, although other ranks still have it mapped.
void Window::close() noexcept {
  const auto length = static_cast<size_t>(shared_end_ - shared_begin_);
  if (length == 0) return;
  const auto keep = [&](dsc_result_t, const char* text) {
    log(DSC_LOG_LEVEL_WARN,
        "%zu bytes at %p stay shared with other processes after the end of their registration: %s", length,
        static_cast<void*>(shared_begin_), text);
  };
  bool is_private = false;
  capture(
      [&] {
        make_private(shared_begin_, length);
        is_private = true;
      },
      keep);
  if (is_private) madvise(segment_, segment_bytes(bytes_), MADV_REMOVE);
}

void Window::detach(const void* start, size_t bytes) {
  std::byte* const first = begin_ + (static_cast<const std::byte*>(start) - begin_);
  std::byte* const from = std::max(first, shared_begin_);
  std::byte* const to = std::min(first + bytes, shared_end_);
  if (from < to) make_private(from, static_cast<size_t>(to - from));
}

template <typename Copy>
void Window::for_each_end(const std::byte* buffer, size_t bytes, const Copy& copy) const noexcept {
  const std::byte* const end = buffer + bytes;
  const auto copy_range = [&](const std::byte* from, const std::byte* to) {
    if (from < to) copy(from - buffer, segment_ + offset_of(from), static_cast<size_t>(to - from));
  };
  copy_range(buffer, std::min<const std::byte*>(end, shared_begin_));
  copy_range(std::max<const std::byte*>(buffer, shared_end_), end);
}

void Window::show_ends(const void* buffer, size_t bytes) const noexcept {
  const auto* const data = static_cast<const std::byte*>(buffer);
  for_each_end(data, bytes, [data](ptrdiff_t at, std::byte* segment, size_t length) {
    std::memcpy(segment, data + at, length);
  });
}

void Window::take_ends(void* buffer, size_t bytes) const noexcept {
  auto* const data = static_cast<std::byte*>(buffer);
  for_each_end(data, bytes, [data](ptrdiff_t at, const std::byte* segment, size_t length) {
    std::memcpy(data + at, segment, length);
  });
}

}  // namespace dsc
