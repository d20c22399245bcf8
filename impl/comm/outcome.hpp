// The outcome of a collective step on each rank, exchanged so that the step fails alike on all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "comm/agreement.hpp"

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

// Collective: returns the values of all ranks, by rank. kind and tag keep different exchanges apart.
template <typename T>
std::vector<T> gather_all(Comm& comm, OpKind kind, uint64_t tag, const T& mine) {
  std::vector<T> all(static_cast<size_t>(comm.size()));
  gather_bytes(comm, kind, tag, &mine, all.data(), sizeof mine);
  return all;
}

}  // namespace dsc
