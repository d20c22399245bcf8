// Collective steps that fail in the same way on all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/gather.hpp"

namespace dsc {

// Returns the failure of the first rank that failed by itself and not because another rank did. all[i] is the
// outcome on rank i, as that rank has written it.
std::optional<Failure> first_failure(std::vector<Failure> all);

// Collective: runs a step on each rank and exchanges the outcomes. Throws on all ranks if the step failed on
// one.
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
