// The end of an iteration in which parameters have no gradient.
#pragma once

#include <span>
#include <string>

#include "comm/comm.hpp"
#include "gradients/param_list.hpp"

namespace dsc {

// The call that replaces the next reduction. It tells the other ranks that this rank starts only `launched`
// reductions. It succeeds if they have not started more either, so that the iteration ends in the same way
// everywhere.
Call incomplete_call(size_t launched, const std::string& first_missing);

// Reports the missing gradients first, as an error of this rank, unless the failure is worse than a
// difference between ranks. `outcome` tells what became of the iteration.
[[noreturn]] void fail_incomplete(const ParamList& params, int rank, std::span<const size_t> absent,
                                  const std::string& outcome, const Failure& failure);

}  // namespace dsc
