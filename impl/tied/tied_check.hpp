// Checks that all ranks agree on the tied layers before these are created.
#pragma once

#include "comm/comm.hpp"
#include "tied/tied.hpp"

namespace dsc {

// The position of a rank in the pipelines.
struct TiedPosition {
  int32_t stage = 0;
  int32_t pipeline = 0;
};

TiedPosition tied_position(const TiedRequest& request, int rank) noexcept;

// Returns the indices of request.keys, sorted by key.
std::vector<size_t> sorted_keys(const TiedRequest& request);

// Collective. Throws the same error on all ranks.
void check_tied(Comm& comm, const TiedRequest& request);

}  // namespace dsc
