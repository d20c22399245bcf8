// Checks the limit on open files before an operation that opens many, so that the operation does not fail
// halfway.
#pragma once

#include <cstddef>
#include <string>

namespace dsc {

// Throws CONFIG, with advice, if opening `more` descriptors would exceed the limit. `who` is the start of the
// message, such as "rank 0 serves 512 ranks".
void check_descriptors(size_t more, const std::string& who);

}  // namespace dsc
