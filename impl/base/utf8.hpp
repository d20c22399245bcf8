// Helpers for external text, which may not be valid UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace dsc {

// Returns the length in bytes of the UTF-8 character at the start of the text, or 0 if there is none.
size_t utf8_length(std::string_view text) noexcept;

// Returns the length of a text without an incomplete UTF-8 character at its end, which a cut may have left.
size_t utf8_whole(std::string_view cut) noexcept;

// Replaces each byte that is not part of a UTF-8 character by a question mark.
void make_utf8(char* text) noexcept;

}  // namespace dsc
