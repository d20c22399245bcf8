#include "reducer/incomplete.hpp"

#include <cstdio>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

std::string reduced_text(size_t launched) {
  if (launched == 0) return "no bucket was reduced";
  if (launched == 1) return "the views of bucket 0 hold results";
  return "the views of buckets 0 to " + std::to_string(launched - 1) + " hold results";
}

}  // namespace

Failure end_alike(Comm& group, size_t launched, const std::string& first_missing) {
  Call call;
  call.kind = OpKind::kReducerFinish;
  call.tag = launched;
  std::snprintf(call.note, sizeof call.note, "no gradient: %s", first_missing.c_str());
  Failure failure;
  capture(
      [&] {
        const auto work = group.start(call);
        wait_ignoring_failure(*work, Deadline::never());
        failure = work->failure();
      },
      // On devices calls are compared before they start.
      [&](const Error& error) { failure = error.failure(); });
  return failure;
}

void fail_incomplete(const ParamList& params, int rank, std::span<const size_t> absent, size_t launched,
                     const Failure& failure) {
  const bool own_fault = failure.code == DSC_OK || failure.code == DSC_ERR_MISMATCH;
  const std::string outcome =
      failure.code == DSC_OK ? reduced_text(launched) : "the reducer is revoked: " + failure.text.str();
  fail_because_of(
      own_fault ? Failure{} : failure, own_fault ? DSC_ERR_STATE : failure.code,
      "expected to have finished reduction, but %zu of %zu parameters did not receive a gradient on rank "
      "%d: %s; %s",
      absent.size(), params.size(), rank, listed_labels(params.labels, absent).c_str(), outcome.c_str());
}

void locate_nonfinite(const BucketSet& set, const ParamList& params, size_t bucket, Failure& failure) {
  const std::byte* const at =
      set.bucket(bucket) + failure.index * dtype_bytes(set.layout.buckets[bucket].dtype);
  for (size_t i = 0; i < params.size(); ++i) {
    const GradientSlot& slot = set.slots[i];
    if (slot.bucket != bucket || at < slot.view || at >= slot.view + slot.bytes) continue;
    failure.index = static_cast<size_t>(at - slot.view) / dtype_bytes(slot.dtype);
    failure.text = "the gradient of " + params.labels[i] + " on rank " + std::to_string(failure.rank()) +
                   " is a NaN or infinite at element " + std::to_string(failure.index) +
                   "; no gradient was written";
    return;
  }
}

}  // namespace dsc
