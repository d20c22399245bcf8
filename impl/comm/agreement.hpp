// Compares lists of texts on all ranks. A difference does not revoke the communicator, so the caller can
// continue with it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.hpp"

namespace dsc {

struct Disagreement {
  size_t line;             // the first line that differs from rank 0's on some rank
  std::string expected;    // the line on rank 0; empty if its list is shorter
  std::string found;       // the line on the first rank that differs; empty if its list is shorter
  std::vector<int> ranks;  // ranks with the line `found`
};

// Collective. All ranks get the same answer; `tag` keeps different comparisons apart. If all lists are
// equal, only hashes travel.
std::optional<Disagreement> find_disagreement(Comm& comm, uint64_t tag, std::span<const std::string> lines);

std::string ranks_text(std::span<const int> ranks);  // "rank 2", "ranks 1, 2"

}  // namespace dsc
