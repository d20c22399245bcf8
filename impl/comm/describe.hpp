// Texts about calls and ranks for messages of all engines.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/failure.hpp"
#include "base/fixed_text.hpp"
#include "control/call.hpp"
#include "dtype/reduce.hpp"

namespace dsc {

// Returns a text such as "the input of rank 2 is NaN or infinite at element 17; 5 elements of all inputs
// are NaN or infinite".
FixedText<160> describe_found(const NonFinite& found) noexcept;
std::string list_ranks(std::span<const int32_t> ranks);
// If `failure` is the time-out of this operation and only the rank `self` was missing, adds to its text that
// this rank arrived late.
void say_if_late(Failure& failure, int32_t self, OpKind kind, uint64_t sequence) noexcept;

}  // namespace dsc
