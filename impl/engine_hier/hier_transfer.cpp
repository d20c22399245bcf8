#include "engine_hier/hier_transfer.hpp"

#include <cstring>

#include "base/guard.hpp"
#include "comm/transfer.hpp"
#include "dtype/dtype.hpp"
#include "engine_hier/all_to_all.hpp"

namespace dsc {

std::optional<std::string> HierTransfer::unsupported_reason(const Call& call) {
  if (call.user) return "user-defined operations do not run between hosts in this version";
  if (call.nonfinite != NonFiniteCheck::kOff)
    return "the non-finite check does not work between hosts in this version";
  return std::nullopt;
}

void HierTransfer::run() {
  switch (pattern_of(call_.kind)) {
    case Pattern::kNothing:
      return;  // the comparison has synchronized all ranks
    case Pattern::kAllReduce:
      return all_reduce();
    case Pattern::kReduce:
      return reduce();
    case Pattern::kReduceScatter:
      return reduce_scatter();
    case Pattern::kBroadcast:
      return broadcast();
    case Pattern::kAllGather:
      return all_gather();
    case Pattern::kScatter:
    case Pattern::kGather:
      return exchange_blocks();
    case Pattern::kAllToAll:
      return AllToAll(context_, call_, deadline_).run();
  }
}

}  // namespace dsc
