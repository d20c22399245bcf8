// The secret that the ranks of a job share: 32 bytes, written as 64 hexadecimal digits.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/environment.hpp"
#include "store/hmac.hpp"

namespace dsc {

using Token = std::optional<Digest>;  // nothing: the job has none

// 64 hexadecimal digits, and white space around them. Throws CONFIG, which never shows what came, but names
// `source`.
Digest parse_token(std::string_view text, const std::string& source);

// From the caller's text, or else what DSC_TOKEN_FD (an open file), DSC_TOKEN_FILE (a file of this
// user's that nobody else may read) or DSC_TOKEN says, in this order. Throws CONFIG, AUTH (the file is open
// to others), SYSTEM.
Token find_token(const char* given, const Environment& environment);

// A fresh one, as text.
std::string random_token();

}  // namespace dsc
