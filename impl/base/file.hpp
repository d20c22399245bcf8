// Files that appear whole or not at all.
#pragma once

#include <string>
#include <string_view>

namespace dsc {

// Writes a file that only this user reads, and makes its folder where that is missing. Who opens the path
// sees the old content or the new one. INVALID_ARG when it is there and not a regular file; SYSTEM with the
// path when it cannot be.
void replace_file(const std::string& path, std::string_view content);

}  // namespace dsc
