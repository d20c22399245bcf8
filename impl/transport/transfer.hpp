// Bytes from hosts to hosts, unchanged.
#pragma once

#include <span>

#include "transport/transport_group.hpp"

namespace dsc {

// Up to here data is posted: one copy more is cheaper than asking first.
inline constexpr size_t kPostBytes = size_t{64} * 1024;

void transfer(Mesh& mesh, std::span<const TransportBlock> sends, std::span<const TransportBlock> receives,
              Deadline deadline);

// Every host passes on a part, so that the root sends everything once and not once per host.
void broadcast_in_parts(Mesh& mesh, std::byte* data, size_t bytes, int32_t root, Deadline deadline);

}  // namespace dsc
