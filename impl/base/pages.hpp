// Pages of memory.
#pragma once

#include <cstddef>

namespace dsc {

size_t page_bytes() noexcept;

// Maps shared memory a second time, at another address, in place of what is mapped there. Both addresses and
// the length are multiples of a page. Returns false, and sets errno, if the system refuses that.
bool map_again(std::byte* shared, size_t bytes, std::byte* at) noexcept;

}  // namespace dsc
