#include "base/pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace dsc {

size_t page_bytes() noexcept {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// With an old size of 0, mremap keeps the old mapping and maps the same pages a second time.
bool map_again(std::byte* shared, size_t bytes, std::byte* at) noexcept {
  return mremap(shared, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED;
}

}  // namespace dsc
