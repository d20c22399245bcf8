// Moves bytes between hosts unchanged.
#pragma once

#include <span>

#include "transport/transport_group.hpp"

namespace dsc {

// Up to this size data is posted: one more copy costs less than waiting for an offer.
inline constexpr size_t kPostBytes = size_t{64} * 1024;

// sends[i] goes to host i and receives[i] comes from it. Blocks of this host itself are ignored.
void transfer(Connections& connections, std::span<const TransportBlock> sends,
              std::span<const TransportBlock> receives, Deadline deadline);

// Broadcasts large data: every host forwards a part, so that the root sends each byte once instead of once
// per host.
void broadcast_in_parts(Connections& connections, std::byte* data, size_t bytes, int32_t root,
                        Deadline deadline);

}  // namespace dsc
