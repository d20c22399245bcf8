#include "sharded/shard_memory.hpp"

#include <utility>

#include "base/error.hpp"

namespace dsc {

ShardMemory::ShardMemory(Comm& group, bool on_device, const FlatOffsets& full, size_t shard_bytes,
                         const UnitOptions& options)
    : space_(Space::of(group, on_device)),
      stream_(space_->make_stream()),
      between_(space_->make_stream()),
      units_(*space_, stream_.get(), full, options),
      shards_(shard_bytes > 0 ? space_->allocate_own(shard_bytes) : nullptr) {}

void ShardMemory::check_stream(void* stream) const {
  space_->check_stream(stream);
  if (space_->is_captured(stream))
    fail(DSC_ERR_UNSUPPORTED, "stream is being captured in a graph, expected another stream");
}

void ShardMemory::keep() noexcept {
  units_.keep();
  dsc::keep(std::move(shards_));
}

}  // namespace dsc
