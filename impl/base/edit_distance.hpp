// How different two names are, for proposals such as "did you mean ...?".
#pragma once

#include <cstddef>
#include <string_view>

namespace dsc {

// Returns the Levenshtein distance: the fewest letters to insert, remove or replace that make `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace dsc
