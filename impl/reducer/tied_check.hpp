// What ranks must have in common before tied layers can be made.
#pragma once

#include "comm/comm.hpp"
#include "reducer/tied.hpp"

namespace dsc {

// Where a rank is.
struct TiedPlace {
  int32_t stage = 0;
  int32_t pipeline = 0;
};

TiedPlace tied_place(const TiedRequest& request, int rank) noexcept;

// Of the keys in sorted order: indices into request.keys.
std::vector<size_t> sorted_keys(const TiedRequest& request);

// Collective. Throws the same error on all ranks.
void check_tied(Comm& comm, const TiedRequest& request);

}  // namespace dsc
