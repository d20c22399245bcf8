// How a step that all ranks take went on each of them, so that it fails everywhere alike.
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

// That of the first rank that failed by itself, rather than since another one did. all[i] is rank i's.
std::optional<Error> first_failure(const std::vector<Outcome>& all);

// Collective: everybody's, by rank. kind and tag keep different questions apart.
template <typename T>
std::vector<T> gather_all(Comm& comm, OpKind kind, uint64_t tag, const T& mine) {
  std::vector<T> all(static_cast<size_t>(comm.size()));
  gather_bytes(comm, kind, tag, &mine, all.data(), sizeof mine);
  return all;
}

}  // namespace dsc
