#include "engine_hier/hier_transfer.hpp"

#include <cstring>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/transfer.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
void HierTransfer::check(const Call& call) {
  if (call.user)
    fail(DSC_ERR_UNSUPPORTED, "operations of the caller's do not run between hosts in this version");
  if (call.nonfinite != NonFiniteCheck::kOff)
    fail(DSC_ERR_UNSUPPORTED, "the non-finite check does not look at ranks of other hosts in this version");
  if (call.kind == OpKind::kAllToAllV)
    fail(DSC_ERR_UNSUPPORTED, "all_to_all_v does not go between hosts in this version");
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
    case Pattern::kAllToAll:
      return exchange_blocks();
  }
}

}  // namespace dsc
