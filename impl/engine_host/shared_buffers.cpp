#include "engine_host/shared_buffers.hpp"

#include "base/error.hpp"

namespace dsc {

SharedRange find_shared(const Group& group, const void* buffer, size_t bytes) noexcept {
  SharedRange range = group.host().memory().find(buffer, bytes);
  for (int member = 0; range.allocation && member < group.size(); ++member)
    if (!range.allocation->segments->has_part(group.local_rank(member))) range = {};
  return range;
}

SharedRange find_shared_with(const Group& group, int member, const void* buffer, size_t bytes) noexcept {
  SharedRange range = group.host().memory().find(buffer, bytes);
  if (range.allocation && !range.allocation->segments->has_part(group.local_rank(member))) range = {};
  return range;
}

const Segments& PeerBuffers::segments_of(int member, uint64_t id) {
  for (const auto& segments : held_)
    if (segments->id == id) return *segments;
  auto segments = group_.host().memory().segments(id);
  if (!segments)
    fail(DSC_ERR_PROTOCOL, "%s announced shared memory that this rank has not mapped",
         group_.describe_member(member).c_str());
  return *held_.emplace_back(std::move(segments));
}

std::byte* PeerBuffers::find(int member, SharedLocation location, size_t bytes) {
  const Segments& segments = segments_of(member, location.segment);
  const int local_rank = group_.local_rank(member);
  if (!segments.holds(local_rank, location.offset, bytes))
    fail(DSC_ERR_PROTOCOL, "%s announced a buffer outside its memory",
         group_.describe_member(member).c_str());
  return segments.base(local_rank) + location.offset;
}

}  // namespace dsc
