// Groups along the axes of a mesh.
#pragma once

#include <memory>

#include "comm/comm.hpp"
#include "topology/mesh.hpp"

namespace dsc {

// Collective. Returns the group of this rank along some axes, such as "tp-dp", which are also its name unless
// the options have one. Throws MISMATCH on all ranks if mesh or axes differ.
std::shared_ptr<Comm> split_along(Comm& comm, const RankMesh& mesh, const char* axes, GroupOptions options);

}  // namespace dsc
