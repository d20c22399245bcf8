// Buffers in memory that all ranks of an operation have mapped: how a rank announces its own, and finds those
// of the others.
#pragma once

#include <memory>
#include <vector>

#include "control/group.hpp"
#include "control/memory.hpp"

namespace dsc {

// Returns a buffer of this rank for publication; an empty range unless all members have mapped its memory.
SharedRange find_shared(const Group& group, const void* buffer, size_t bytes) noexcept;
// Does the same for one other member.
SharedRange find_shared_with(const Group& group, int member, const void* buffer, size_t bytes) noexcept;

// The memory of other members in one operation. It stays mapped while this object exists.
class PeerBuffers {
 public:
  explicit PeerBuffers(const Group& group) noexcept : group_(group) {}
  // Returns the address in this process of a buffer that another member has published. Call it only while the
  // operation cannot be complete for that member, because this rank still has work to do for it. Throws
  // PROTOCOL, because a corrupted or hostile peer may have published anything.
  std::byte* find(int member, SharedLocation location, size_t bytes);

 private:
  const Segments& segments_of(int member, uint64_t id);

  const Group& group_;
  std::vector<std::shared_ptr<const Segments>> held_;
};

}  // namespace dsc
