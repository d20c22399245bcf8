// Names of axes, and words like "tp-dp" that are made of them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dsc {

inline constexpr size_t kAxisNameBytes = 31;

// Letters, digits and '_', 1 to 31 of them; throws INVALID_ARG.
void check_axis_name(std::string_view name);

// The tokens between '-'; `what` names the text in errors. Throws INVALID_ARG for an empty or a double one.
std::vector<std::string_view> split_tokens(std::string_view text, const char* what);

// Text of the caller for a message: cut to what shows it, and without control characters.
std::string shown_words(std::string_view text);

// "; did you mean "tp"? (known: tp, dp)": the nearest name only where one is near.
std::string known_names(std::string_view word, std::span<const std::string> names);

}  // namespace dsc
