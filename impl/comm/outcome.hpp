// The outcome of a collective step on each rank, exchanged so that the step fails alike on all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/gather.hpp"

namespace dsc {

struct Outcome {
  int32_t code = DSC_OK;
  int32_t native_code = 0;
  char text[440] = {};
};

Outcome outcome_of(const Error& error) noexcept;

// Returns the error of the first rank that failed on its own and not because another rank did. all[i] is
// the outcome of rank i.
std::optional<Error> first_failure(const std::vector<Outcome>& all);

// Collective: runs a step on each rank and exchanges how it went; throws on all ranks if it failed on one.
template <typename Group, typename Step>
void run_on_all(Group& group, OpKind kind, uint64_t tag, const std::string& note, const Step& step) {
  Outcome mine;
  capture(step, [&](const Error& error) { mine = outcome_of(error); });
  if (const auto failure = first_failure(gather_all(group, kind, tag, mine, note))) throw Error(*failure);
}

}  // namespace dsc
