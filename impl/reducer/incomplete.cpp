#include "reducer/incomplete.hpp"

#include <string>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "dtype/dtype.hpp"

namespace dsc {

std::string reduced_text(size_t launched) {
  if (launched == 0) return "no bucket was reduced";
  if (launched == 1) return "the views of bucket 0 hold results";
  return "the views of buckets 0 to " + std::to_string(launched - 1) + " hold results";
}

Failure end_alike(Comm& group, size_t launched, const std::string& first_missing) {
  const Call call = incomplete_call(launched, first_missing);
  Failure failure;
  capture(
      [&] {
        const auto work = group.start(call);
        wait_ignoring_failure(*work, Deadline::never());
        failure = work->failure();
      },
      // On devices, ranks compare calls before they start, and a mismatch is thrown here.
      [&](const Error& error) { failure = error.failure(); });
  return failure;
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
