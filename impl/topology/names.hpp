// Names of axes, and texts such as "tp-dp" that are composed of them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dsc {

inline constexpr size_t kAxisNameBytes = 31;

// Requires 1 to 31 letters, digits and '_'; throws INVALID_ARG.
void check_axis_name(std::string_view name);

// Returns the tokens between '-'; `what` names the text in errors. Throws INVALID_ARG for an empty or a
// repeated token.
std::vector<std::string_view> split_tokens(std::string_view text, const char* what);

// Prepares a text of the caller for a message: it is shortened, and control characters are replaced.
std::string shown_words(std::string_view text);

// Returns a hint such as "; did you mean "tp"? (known: tp, dp)"; a name is suggested only if it is similar.
std::string known_names(std::string_view word, std::span<const std::string> names);

}  // namespace dsc
