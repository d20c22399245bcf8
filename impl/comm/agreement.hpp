// Do all ranks hold the same list of texts? Settled without revoking the communicator, so that the caller can
// mend it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.hpp"

namespace dsc {

// Collective: an all-gather of `bytes` bytes per rank; kind and tag keep different questions apart.
void gather_bytes(Comm& comm, OpKind kind, uint64_t tag, const void* mine, void* all, size_t bytes);

struct Disagreement {
  size_t line;             // first line that differs from rank 0's on some rank
  std::string expected;    // rank 0's; empty when its list is shorter
  std::string found;       // that of the first rank that differs; empty when its list is shorter
  std::vector<int> ranks;  // ranks that have it
};

// Collective. All ranks get the same answer; tag keeps different questions apart. Only hashes travel when all
// agree.
std::optional<Disagreement> find_disagreement(Comm& comm, uint64_t tag, std::span<const std::string> lines);

std::string ranks_text(std::span<const int> ranks);  // "rank 2", "ranks 1, 2"

}  // namespace dsc
