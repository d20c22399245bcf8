// Files that are read as a whole.
#pragma once

#include <string>

namespace tools {

// The text of a file; "-" is stdin. Throws std::invalid_argument without the name for what cannot be read,
// and for what is no file and has no end, such as /dev/zero.
std::string text_of_file(const std::string& path);

}  // namespace tools
