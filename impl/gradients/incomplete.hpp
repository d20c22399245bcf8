// The end of an iteration in which parameters miss a gradient.
#pragma once

#include <span>
#include <string>

#include "comm/comm.hpp"
#include "gradients/param_list.hpp"

namespace dsc {

// The call that takes the place of the next reduction: it tells the other ranks that this one starts only
// `launched` of them. It succeeds if they have started no more either, so that the iteration ends alike
// everywhere.
Call incomplete_call(size_t launched, const std::string& first_missing);

// Reports the missing gradients first, as this rank's own fault, unless the failure is worse than a
// difference between ranks. `outcome` says what became of the iteration.
[[noreturn]] void fail_incomplete(const ParamList& params, int rank, std::span<const size_t> absent,
                                  const std::string& outcome, const Failure& failure);

}  // namespace dsc
