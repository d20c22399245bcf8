// Replaces the content of files atomically.
#pragma once

#include <string>
#include <string_view>

namespace dsc {

// Writes a file that only the current user may read, and creates its folder if necessary. A reader sees
// either the old content or the new content. Throws INVALID_ARG if the path exists and is not a regular file.
// Throws SYSTEM if the file cannot be written.
void replace_file(const std::string& path, std::string_view content);

}  // namespace dsc
