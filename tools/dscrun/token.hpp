// The secret that the ranks of one job share: 64 hexadecimal digits.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "dscrun/unique_fd.hpp"

namespace dscrun {

std::string random_hex(size_t bytes);  // twice as many digits
std::string new_token();

// What the user gave: DSC_TOKEN_FD, else DSC_TOKEN_FILE, else DSC_TOKEN. Throws std::runtime_error if it
// cannot be read, is no token, or lies in a file that is open to others.
std::optional<std::string> given_token();

// A sealed file in memory with a position of its own, for one process. Throws std::runtime_error.
UniqueFd token_file(const std::string& token);

}  // namespace dscrun
