#include "comm/outcome.hpp"

#include <algorithm>
#include <cstdio>

namespace dsc {

Outcome outcome_of(const Error& error) noexcept {
  Outcome outcome;
  outcome.code = error.code();
  outcome.native_code = error.place().native_code;
  std::snprintf(outcome.text, sizeof outcome.text, "%.430s", error.what());
  return outcome;
}

std::optional<Error> first_failure(const std::vector<Outcome>& all) {
  const auto failed = [](const Outcome& outcome) { return outcome.code != DSC_OK; };
  auto found = std::ranges::find_if(
      all, [&](const Outcome& outcome) { return failed(outcome) && outcome.code != DSC_ERR_REVOKED; });
  if (found == all.end()) found = std::ranges::find_if(all, failed);
  if (found == all.end()) return std::nullopt;
  const auto rank = static_cast<int32_t>(found - all.begin());
  ErrorPlace place;
  place.native_code = found->native_code;
  place.rank = rank;
  char text[Error::kTextBytes];
  std::snprintf(text, sizeof text, "rank %d: %.440s", rank, found->text);
  return Error(found->code, text, place);
}

}  // namespace dsc
