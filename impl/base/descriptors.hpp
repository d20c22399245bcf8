// Checks the limit on open files before an operation that needs many, so that it does not fail halfway.
#pragma once

#include <cstddef>
#include <string>

namespace dsc {

// Throws CONFIG, with advice, if `more` descriptors exceed the limit. `who` starts the message, such as "rank
// 0 serves 512 ranks".
void check_descriptors(size_t more, const std::string& who);

}  // namespace dsc
