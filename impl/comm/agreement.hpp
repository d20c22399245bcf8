// Compares lists of texts between all ranks. The communicator stays usable if they differ.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.hpp"

namespace dsc {

struct Disagreement {
  size_t line;           // index of the first line in which a rank differs from rank 0
  std::string expected;  // text of this line on rank 0; empty if rank 0 has fewer lines
  // Text of this line on the first rank that differs; empty if that rank has fewer lines.
  std::string found;
  std::vector<int> ranks;  // the ranks whose line is `found`
};

// Collective. Returns the first difference, which is the same on all ranks, or nothing if all lists are
// equal. `tag` distinguishes one comparison from another. Ranks first exchange only hashes, and the texts
// only if the hashes differ.
std::optional<Disagreement> find_disagreement(Comm& comm, uint64_t tag, std::span<const std::string> lines);

std::string ranks_text(std::span<const int> ranks);  // returns a text such as "rank 2" or "ranks 1, 2"

}  // namespace dsc
