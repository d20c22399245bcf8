// The secret that the ranks of a job share. It has 32 bytes, and is written as 64 hexadecimal digits.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/environment.hpp"
#include "store/hmac.hpp"

namespace dsc {

using Token = std::optional<Digest>;  // nullopt: the job has no token

// Parses 64 hexadecimal digits, which may be surrounded by white space. Throws CONFIG; the message names
// `source` but never shows the text.
Digest parse_token(std::string_view text, const std::string& source);

// Returns the token from the first of these that is set: `given`, DSC_TOKEN_FD (the descriptor of an open
// file), DSC_TOKEN_FILE (a file that only this user may read), DSC_TOKEN. Throws CONFIG, SYSTEM, and AUTH if
// other users may read the file.
Token find_token(const char* given, const Environment& environment);

// Returns a new random token, as text.
std::string random_token();

}  // namespace dsc
