// Whether this process may open as many files as something will need: told before it begins, not in its
// middle.
#pragma once

#include <cstddef>
#include <string>

namespace dsc {

// Throws CONFIG, with what to do. `who` begins the text: "rank 0 serves 512 ranks".
void check_descriptors(size_t more, const std::string& who);

}  // namespace dsc
