// The end of an iteration in which parameters miss a gradient, or have one that is not finite.
#pragma once

#include <span>
#include <string>

#include "comm/comm.hpp"
#include "reducer/bucket_set.hpp"
#include "gradients/param_list.hpp"

namespace dsc {

// Collective, in place of the next bucket: tells the other ranks that this one starts only `launched`
// buckets. The code of the result is OK if they have started no more either, so that the iteration ends alike
// everywhere.
Failure end_alike(Comm& group, size_t launched, const std::string& first_missing);

// Reports the missing gradients first, as this rank's own fault, unless the failure is worse than a
// difference between ranks.
[[noreturn]] void fail_incomplete(const ParamList& params, int rank, std::span<const size_t> absent,
                                  size_t launched, const Failure& failure);

// Translates the index of an element of a bucket to the parameter and the index in its gradient.
void locate_nonfinite(const BucketSet& set, const ParamList& params, size_t bucket, Failure& failure);

}  // namespace dsc
