#include "comm/outcome.hpp"

#include <algorithm>

namespace dsc {

std::optional<Failure> first_failure(std::vector<Failure> all) {
  for (Failure& one : all) one.bound();
  const auto failed = [](const Failure& one) { return one.code != DSC_OK; };
  auto found = std::ranges::find_if(
      all, [&](const Failure& one) { return failed(one) && one.code != DSC_ERR_REVOKED; });
  if (found == all.end()) found = std::ranges::find_if(all, failed);
  if (found == all.end()) return std::nullopt;
  const auto rank = static_cast<int32_t>(found - all.begin());
  Failure failure;
  failure.code = found->code;
  failure.system_error = found->system_error;
  failure.native_code = found->native_code;
  failure.ranks = {rank};
  failure.text.add("rank %d: %s", rank, found->text.c_str());
  return failure;
}

}  // namespace dsc
