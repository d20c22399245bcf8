// Groups along the axes of a mesh.
#pragma once

#include <memory>

#include "comm/comm.hpp"
#include "topology/mesh.hpp"

namespace dsc {

// Collective. Returns this rank's group along some axes, such as "tp-dp". The axes are also the name of the
// group, unless the options contain one. If mesh or axes differ between ranks, all ranks throw MISMATCH.
std::shared_ptr<Comm> split_along(Comm& comm, const RankMesh& mesh, const char* axes, GroupOptions options);

}  // namespace dsc
