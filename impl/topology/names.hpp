// Names of axes, and texts such as "tp-dp" that are composed of them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dsc {

inline constexpr size_t kAxisNameBytes = 31;

// Throws INVALID_ARG unless the name consists of 1 to 31 letters, digits and '_'.
void check_axis_name(std::string_view name);

// Splits a text at '-' and returns the tokens. `what` is the name of the text in error messages. Throws
// INVALID_ARG for an empty or a repeated token.
std::vector<std::string_view> split_tokens(std::string_view text, const char* what);

// Prepares a text of the caller for an error message: shortens it and replaces control characters.
std::string shown_words(std::string_view text);

// Returns a hint such as "; did you mean "tp"? (known: tp, dp)". A name is suggested only if it is similar to
// `word`.
std::string known_names(std::string_view word, std::span<const std::string> names);

}  // namespace dsc
