// The secret that the ranks of a job share: 32 bytes, written as 64 hexadecimal digits.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/environment.hpp"
#include "store/hmac.hpp"

namespace dsc {

using Token = std::optional<Digest>;  // nullopt: the job has no token

// Parses 64 hexadecimal digits, with optional white space around them. Throws CONFIG, which names `source`
// but never shows the text.
Digest parse_token(std::string_view text, const std::string& source);

// Returns the token from `given` or otherwise from DSC_TOKEN_FD (an open file), DSC_TOKEN_FILE (a file that
// only this user may read) or DSC_TOKEN, in this order. Throws CONFIG, AUTH (others may read the file),
// SYSTEM.
Token find_token(const char* given, const Environment& environment);

// Makes a new token, as text.
std::string random_token();

}  // namespace dsc
