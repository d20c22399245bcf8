// The secret that the ranks of one job share: 64 hexadecimal digits.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "dscrun/unique_fd.hpp"

namespace dscrun {

std::string random_hex(size_t bytes);  // returns twice as many digits
std::string new_token();

// Returns the user's token, from DSC_TOKEN_FD, DSC_TOKEN_FILE or DSC_TOKEN, in this order. Throws
// std::runtime_error if it cannot be read, is not a token, or is in a file that other users can read.
std::optional<std::string> given_token();

// Returns a sealed file in memory, with its own file position, for one process. Throws std::runtime_error.
UniqueFd token_file(const std::string& token);

}  // namespace dscrun
