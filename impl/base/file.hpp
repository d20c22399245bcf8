// Atomic replacement of files.
#pragma once

#include <string>
#include <string_view>

namespace dsc {

// Writes a file that only the current user may read, and makes its folder if necessary. Readers of the path
// see either the old content or the new one. Throws INVALID_ARG if the path exists and is not a regular file,
// SYSTEM with the path if it cannot be written.
void replace_file(const std::string& path, std::string_view content);

}  // namespace dsc
