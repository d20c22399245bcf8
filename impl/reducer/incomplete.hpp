// Helpers to end an iteration in which gradients are missing or not finite.
#pragma once

#include <span>
#include <string>

#include "comm/comm.hpp"
#include "gradients/incomplete.hpp"
#include "reducer/bucket_set.hpp"

namespace dsc {

// Collective, called instead of starting the next bucket. It informs the other ranks that this rank starts
// only `launched` buckets. Returns success if the other ranks also started only this many, because then the
// iteration ends in the same way on all ranks.
Failure end_alike(Comm& group, size_t launched, const std::string& first_missing);

// Returns a text that names the buckets with results, if only the first `launched` ones were reduced.
std::string reduced_text(size_t launched);

// Changes a failure that names an element of a bucket, so that it names the parameter and the element of its
// gradient.
void locate_nonfinite(const BucketSet& set, const ParamList& params, size_t bucket, Failure& failure);

}  // namespace dsc
