// Reads whole text files.
#pragma once

#include <string>

namespace tools {

// Returns the text of a file; "-" is stdin. Throws std::invalid_argument, without the file's name, for a file
// that cannot be read, and for an input without an end, such as /dev/zero.
std::string text_of_file(const std::string& path);

}  // namespace tools
