#include "dsc/sampler.h"

#include <algorithm>
#include <vector>

#include "base/guard.hpp"
#include "bucket_plan/shard.hpp"
#include "checks.hpp"
#include "give.hpp"

dsc_result_t dsc_sampler_indices(size_t count, size_t shards, size_t shard, int32_t shuffle, uint64_t seed,
                                 int32_t drop_last, size_t* indices, size_t capacity, size_t* needed) {
  return dsc::guard_pure(__func__, [&] {
    const dsc::Sharding sharding{count, shards, dsc::read_flag("shuffle", shuffle), seed,
                                 dsc::read_flag("drop_last", drop_last)};
    dsc::check_room(indices, "indices", capacity, needed);
    const size_t size = dsc::shard_size(sharding);
    dsc::check_shard(sharding, shard);
    *needed = size;
    if (capacity == 0) return DSC_OK;
    if (capacity >= *needed) {
      dsc::shard_indices(sharding, shard, {indices, *needed});
      return DSC_OK;
    }
    std::vector<size_t> all(*needed);
    dsc::shard_indices(sharding, shard, all);
    std::copy_n(all.begin(), capacity, indices);
    return DSC_TRUNCATED;
  });
}
