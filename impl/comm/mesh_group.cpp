#include "comm/mesh_group.hpp"

#include "comm/agreement.hpp"
#include "topology/names.hpp"

namespace dsc {
namespace {

constexpr uint64_t kMeshTag = 3;  // the tag for find_disagreement()

void verify_mesh(Comm& comm, const RankMesh& mesh, const char* axes) {
  const std::string lines[] = {mesh.describe(), axes};
  const auto found = find_disagreement(comm, kMeshTag, lines);
  if (!found) return;
  fail(DSC_ERR_MISMATCH, "expected the same %s on all ranks, but it is \"%s\" on rank 0 and \"%s\" on %s",
       found->line == 0 ? "mesh" : "axes", shown_words(found->expected).c_str(),
       shown_words(found->found).c_str(), ranks_text(found->ranks).c_str());
}

}  // namespace

// Ranks compare mesh and axes first, because the result of later checks may differ between ranks.
std::shared_ptr<Comm> split_along(Comm& comm, const RankMesh& mesh, const char* axes, GroupOptions options) {
  verify_mesh(comm, mesh, axes);
  if (mesh.size() != comm.size())
    fail(DSC_ERR_INVALID_ARG, "the mesh has %d ranks, expected %d as the communicator", mesh.size(),
         comm.size());
  const std::vector<size_t> set = mesh.axis_set(axes);
  if (options.name.empty()) options.name = mesh.text_of(set);
  const MeshPosition own = mesh.groups(set).position(comm.rank() + mesh.first_rank());
  return comm.split(own.group, own.member, options);
}

}  // namespace dsc
