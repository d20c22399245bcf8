// Transfers bytes between hosts unchanged.
#pragma once

#include <span>

#include "transport/transport_group.hpp"

namespace dsc {

// Data up to this size is posted, because the additional copy costs less than waiting for an offer.
inline constexpr size_t kPostBytes = size_t{64} * 1024;

// sends[i] is sent to host i, and receives[i] is received from it. The blocks at this host's own index are
// ignored.
void transfer(Connections& connections, std::span<const TransportBlock> sends,
              std::span<const TransportBlock> receives, Deadline deadline);

// Broadcasts large data. Every host forwards a part, so that the root sends each byte only once, and not once
// to each host.
void broadcast_in_parts(Connections& connections, std::byte* data, size_t bytes, int32_t root,
                        Deadline deadline);

}  // namespace dsc
