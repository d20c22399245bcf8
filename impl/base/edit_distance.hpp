// Measures how different two names are, to suggest a correction such as "did you mean ...?".
#pragma once

#include <cstddef>
#include <string_view>

namespace dsc {

// Returns the Levenshtein distance: the smallest number of letters to insert, remove or replace so that `a`
// becomes `b`.
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace dsc
