#include "gradients/incomplete.hpp"

#include <cstdio>

#include "base/error.hpp"

namespace dsc {

Call incomplete_call(size_t launched, const std::string& first_missing) {
  Call call;
  call.kind = OpKind::kReducerFinish;
  call.tag = launched;
  std::snprintf(call.note, sizeof call.note, "no gradient: %s", first_missing.c_str());
  return call;
}

void fail_incomplete(const ParamList& params, int rank, std::span<const size_t> absent,
                     const std::string& outcome, const Failure& failure) {
  const bool own_fault = failure.code == DSC_OK || failure.code == DSC_ERR_MISMATCH;
  fail_because_of(
      own_fault ? Failure{} : failure, own_fault ? DSC_ERR_STATE : failure.code,
      "the iteration is incomplete: %zu of %zu parameters did not receive a gradient on rank %d: %s; %s",
      absent.size(), params.size(), rank, listed_labels(params.labels, absent).c_str(), outcome.c_str());
}

}  // namespace dsc
