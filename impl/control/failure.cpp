#include "control/failure.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace dsc {

ErrorPlace place_of(const Failure& failure) noexcept {
  ErrorPlace place;
  place.group = failure.group;
  place.sequence = failure.sequence;
  place.elapsed_ns = failure.elapsed_ns;
  place.index = failure.index;
  place.rank = failure.rank;
  place.native_code = failure.native_code;
  place.revoked = failure.revoked;
  const size_t ranks = std::min(failure.ranks.size(), std::size(place.ranks));
  place.n_ranks = static_cast<int32_t>(ranks);
  std::copy_n(failure.ranks.begin(), ranks, place.ranks);
  std::snprintf(place.operation, sizeof place.operation, "%s", failure.operation.c_str());
  return place;
}

void fail_with(const Failure& failure) { throw Error(failure.code, failure.text.c_str(), place_of(failure)); }

}  // namespace dsc
