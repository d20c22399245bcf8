// Text that came from outside, which may be no UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace dsc {

// Returns the length of the UTF-8 character at the start of the text; 0 when there is none.
size_t utf8_length(std::string_view text) noexcept;

// Replaces each byte that is not part of a UTF-8 character with a question mark.
void make_utf8(char* text) noexcept;

}  // namespace dsc
