// The end of an iteration in which parameters have no gradient, or one that is not finite.
#pragma once

#include <span>
#include <string>

#include "comm/comm.hpp"
#include "gradients/incomplete.hpp"
#include "reducer/bucket_set.hpp"

namespace dsc {

// Collective, called instead of the next bucket: tells the other ranks that this one starts only `launched`
// buckets. The code of the result is OK if they have not started more either, so that the iteration ends in
// the same way everywhere.
Failure end_alike(Comm& group, size_t launched, const std::string& first_missing);

// Returns which buckets hold results when only the first ones were reduced, as a text.
std::string reduced_text(size_t launched);

// Translates the index of an element of a bucket to the parameter and the index in its gradient.
void locate_nonfinite(const BucketSet& set, const ParamList& params, size_t bucket, Failure& failure);

}  // namespace dsc
