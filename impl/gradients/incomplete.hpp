// Helpers to end an iteration in which some parameters have no gradient.
#pragma once

#include <span>
#include <string>

#include "comm/comm.hpp"
#include "gradients/param_list.hpp"

namespace dsc {

// Returns a call that replaces the next reduction. It informs the other ranks that this rank starts only
// `launched` reductions. It succeeds if the other ranks also started only this many, because then the
// iteration ends in the same way on all ranks.
Call incomplete_call(size_t launched, const std::string& first_missing);

// Throws an error that names the missing gradients first. The code is STATE if `failure` is OK or MISMATCH,
// because this rank is then the cause. Otherwise it is the code of `failure`. `outcome` describes the state
// of the buckets or shards.
[[noreturn]] void fail_incomplete(const ParamList& params, int rank, std::span<const size_t> absent,
                                  const std::string& outcome, const Failure& failure);

}  // namespace dsc
