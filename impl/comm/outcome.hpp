// Collective steps that either succeed on all ranks or fail on all ranks with the same error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/gather.hpp"

namespace dsc {

// Returns the failure of the first rank whose own step failed. If there is none, returns the failure of a
// rank that failed only because of another rank. all[i] is the result on rank i, as that rank has sent it.
std::optional<Failure> first_failure(std::vector<Failure> all);

// Collective. Runs a step on each rank and exchanges the results. If the step failed on a rank, throws on all
// ranks.
template <typename Group, typename Step>
void run_on_all(Group& group, OpKind kind, uint64_t tag, const std::string& note, const Step& step) {
  Failure mine;
  capture(step, [&](const Error& error) { mine = error.failure(); });
  auto failure = first_failure(gather_all(group, kind, tag, mine, note));
  if (!failure) return;
  failure->set_group(group.id(), group.name());
  throw Error(*failure);
}

}  // namespace dsc
